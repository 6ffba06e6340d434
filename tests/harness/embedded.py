"""The embedded API server as a process of its own, beside the real one in every comparison."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.harness.processes import Child, free_ports, start


class Embedded:
    name = "embedded"

    def __init__(self, extra_flags: Sequence[str] = ()) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="subnetes-embedded-"))
        self.extra_flags = list(extra_flags)
        self.data = self.folder / "data"
        self.kubeconfig = self.folder / "kubeconfig"
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        self.token = ""
        self.ca_file = self.folder / "ca.crt"
        self._child: Child | None = None

    def __enter__(self) -> Embedded:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, patience: float = 30) -> None:
        self.kubeconfig.unlink(missing_ok=True)  # it is written when the server is ready
        flags = [f"--data-dir={self.data}", f"--port={self.port}", f"--kubeconfig={self.kubeconfig}"]
        command = [sys.executable, "-m", "subnetes.apiserver", *flags, *self.extra_flags]
        self._child = start(command, self.folder / "log")
        deadline = time.monotonic() + patience
        while not self.kubeconfig.exists():
            if self._child.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the embedded API server is not ready: {self._child.tail()}")
            time.sleep(0.02)
        self._read_kubeconfig()

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> dict[str, int]:
        """The ids of what runs, for those who measure it."""
        return {} if self._child is None else {"embedded": self._child.process.pid}

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _read_kubeconfig(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.token = config["users"][0]["user"]["token"]
        self.ca_file = Path(config["clusters"][0]["cluster"]["certificate-authority"])

"""Child processes that cannot outlive the test run, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Child:
    """A process that the kernel kills when we die, and that `stop` ends and reaps."""

    process: subprocess.Popen[bytes]
    log: Path

    def stop(self, sign: int = signal.SIGTERM, patience: float = 10) -> None:
        if self.process.poll() is None:
            self.process.send_signal(sign)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def tail(self, characters: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-characters:]


def start(command: Sequence[str | os.PathLike[str]], log: Path, cwd: Path | None = None) -> Child:
    """Run a command with its output in `log`; `setpriv` asks the kernel for the death signal."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
        )
    return Child(process, log)


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

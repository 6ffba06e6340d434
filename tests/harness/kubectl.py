"""kubectl as a user runs it, at one server or at two with what it prints compared."""

from __future__ import annotations

import os
import queue
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.harness.rest import PATIENCE, normal

_AGE = re.compile(r"(?<![\w.-])(\d+[dhms]){1,2}(?![\w.-])")
_VERSION = re.compile(r"(resourceVersion: |\"resourceVersion\": |Resource Version: +)\"?\d+\"?")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_SPACES = re.compile(r" {2,}")


@dataclass(frozen=True)
class Output:
    code: int
    stdout: str
    stderr: str

    def normal(self) -> Output:
        return Output(self.code, normal_text(self.stdout), normal_text(self.stderr))


def normal_text(text: str) -> str:
    """Without ages, ids, times, versions, addresses, and the widths that follow from them."""
    shown = _ADDRESS.sub("<address>", _VERSION.sub(r"\1<rv>", str(normal(text))))
    return "\n".join(_SPACES.sub("  ", _AGE.sub("<age>", line)).rstrip() for line in shown.splitlines())


@dataclass(frozen=True)
class Kubectl:
    binary: Path
    kubeconfig: Path
    cache: Path

    def run(self, *arguments: str, stdin: str | None = None, editor: str | None = None) -> Output:
        done = subprocess.run(
            self._command(arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | ({"KUBE_EDITOR": editor} if editor else {}),
        )
        return Output(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *arguments: str) -> Iterator[Running]:
        """kubectl in the background, for watches and waits; it is ended with the block."""
        process = subprocess.Popen(
            self._command(arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        running = Running(process)
        try:
            yield running
        finally:
            process.kill()
            running.close()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [str(self.binary), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.cache}", *arguments]


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def line(self) -> str:
        """The next line it prints; fails when none comes."""
        return self._lines.get(timeout=PATIENCE)

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))


@dataclass(frozen=True)
class Pair:
    """The same command at both servers."""

    embedded: Kubectl
    real: Kubectl
    namespace: str

    def same(self, *arguments: str, stdin: str | None = None, editor: str | None = None) -> Output:
        """What the embedded server made it print, which is proven to be what the real one does."""
        line = ("--namespace", self.namespace, *arguments)
        real, embedded = (each.run(*line, stdin=stdin, editor=editor) for each in (self.real, self.embedded))
        assert embedded.normal() == real.normal(), (
            f"kubectl {' '.join(arguments)}\nembedded: {embedded}\nreal: {real}"
        )
        return embedded


def manifest(*objects: dict[str, Any]) -> str:
    """What a user would keep in a file."""
    return yaml.safe_dump_all(objects)

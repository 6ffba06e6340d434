"""A machine as far as its processes can tell: network, mounts, process ids, /run, /var/lib of its own.

The kernel does the cleaning. All that a machine is (namespaces, links, mounts, containers and the shims that
outlive their runtime on purpose) hangs on its first process, and that one dies with the test run, however the
run ends; nothing has a name on the host. Only the run's folder and its cgroups remain then: see runs.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
PRIVATE = ("/var/lib", "/var/log")  # beside /run: hard-wired into libcni, kubelet and containerd
Command = Sequence[str | os.PathLike[str]]


class MachineFailed(Exception):
    """A machine, or a program on it, did not start; the text has the end of its log."""


@dataclass(frozen=True)
class Program:
    """A process on a machine, seen from the host through the `nsenter` that started it."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The host's id of the program itself."""
        return _only_child(self.process)

    def kill(self, sign: int = signal.SIGKILL) -> None:
        """Send the signal and wait for the end."""
        if self.process.poll() is None:
            os.kill(self.pid, sign)
        self.process.wait(30)

    def tail(self, characters: int = 3000) -> str:
        return self.log.read_text(errors="replace")[-characters:]

    def must_run(self) -> None:
        if self.process.poll() is not None:
            raise MachineFailed(f"{self.name} ended with {self.process.returncode}: {self.tail()}")


class Machine:
    """`tied`: it ends with us; otherwise it stays until somebody kills its first process."""

    def __init__(self, name: str, folder: Path, init: Path, *, tied: bool = True) -> None:
        self.name = name
        self.folder = folder
        self.tied = tied
        folder.mkdir()
        unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._spawn([*unshare, init], folder / "init.log")
        try:
            self.pid = self._first_process(init)
            self._enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid"]
            self._make_private()
            self.network("ip", "link", "set", "lo", "up")
        except BaseException:
            self.off()
            raise

    def path(self, inside: str) -> Path:
        """A file of the machine, for those outside."""
        return Path(f"/proc/{self.pid}/root", inside.lstrip("/"))

    def start(self, name: str, *command: str | os.PathLike[str]) -> Program:
        log = self.folder / f"{name}.log"
        return Program(name, self._spawn([*self._enter, *DIES_WITH_PARENT, *command], log), log)

    def run(
        self,
        *command: str | os.PathLike[str],
        stdin: str | None = None,
        environment: dict[str, str] | None = None,
        patience: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end and hand back what was said; whether it succeeded is for the caller to judge."""
        return subprocess.run(
            [*self._enter, *DIES_WITH_PARENT, *command],
            input=stdin,
            env=_environment() | (environment or {}),
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )

    def network(self, *command: str) -> None:
        """A command in the machine's network alone: process ids in it are the host's."""
        done = subprocess.run(
            ["nsenter", f"--target={self.pid}", "--net", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MachineFailed(f"{' '.join(command)} on {self.name}: {done.stderr.strip()}")

    def off(self) -> None:
        """Power off: `unshare` takes the first process with it, and that one all others."""
        self._processes[0].kill()
        for process in self._processes:
            process.wait(30)

    def _make_private(self) -> None:
        lines = ["mount -t tmpfs -o mode=755 run /run"]
        for place in PRIVATE:
            source = self.folder / place.strip("/").replace("/", "-")
            source.mkdir()
            lines.append(f"mount --bind '{source}' {place}")
        done = self.run("sh", "-ec", "\n".join(lines))
        if done.returncode:
            raise MachineFailed(f"mounts of {self.name}: {done.stderr.strip()}")

    def _first_process(self, init: Path) -> int:
        unshare = self._processes[0]
        deadline = time.monotonic() + 10
        while unshare.poll() is None and time.monotonic() < deadline:
            found = _children(unshare.pid)
            if found and _executable(found[0]) == str(init):
                return found[0]
            time.sleep(0.005)
        said = (self.folder / "init.log").read_text().strip()
        raise MachineFailed(f"{self.name} has no first process: {said or 'no reason given'}")

    def _spawn(self, command: Command, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*(DIES_WITH_PARENT if self.tied else ()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_environment(),
                start_new_session=not self.tied,
            )
        self._processes.append(process)
        return process


def _environment() -> dict[str, str]:
    """Ours, without the way to a proxy: from a machine there is none to anywhere."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def first_processes(init: Path) -> list[int]:
    """The first processes of all machines that were started with this very file, whoever started them."""
    running = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid in running if _executable(pid) == str(init)]


def _executable(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/exe").readlink())
    except OSError:  # gone meanwhile, or a thread of the kernel
        return ""


def _only_child(process: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < deadline:
        if found := _children(process.pid):
            return found[0]
        time.sleep(0.005)
    raise MachineFailed(f"process {process.pid} has no child")


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []

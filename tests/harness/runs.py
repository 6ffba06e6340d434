"""The folders of test clusters: one a run, of a name of its own, and the removal of what killed runs left.

A run that a test started is held by a lock, which the kernel lets go when the process dies: an unlocked run
is a killed one, and the next to come removes it. A run that `make cluster` started is marked as kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tests.harness.kube_assets import cache_dir
from tests.harness.machine import Machine, first_processes

CGROUPS = Path("/sys/fs/cgroup")
_CONTAINERS = "*/var-lib/containerd/io.containerd.grpc.v1.cri/*/*"
_KEPT = "kept"


class Run:
    """A folder, what may run for it, and whose it is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock: IO[str] | None = None
        self._machines: list[Machine] = []

    @classmethod
    def create(cls, name: str | None = None) -> Run:
        """A fresh folder, ours while we live, or kept if it has a name; what killed runs left goes first."""
        remove_abandoned()
        with _alone():
            run = cls(base() / (name or secrets.token_hex(3)))
            run.folder.mkdir(mode=0o700)
            if name:
                (run.folder / _KEPT).touch()
            else:
                run._hold()
        return run

    @property
    def kept(self) -> bool:
        return (self.folder / _KEPT).exists()

    @property
    def init(self) -> Path:
        """The program that is the first process of this run's machines, which tells them from all others."""
        return self.folder / "init"

    def machine(self, name: str) -> Machine:
        """One more machine of this run; it ends with us unless the run is kept."""
        made = Machine(name, self.folder / name, self.init, tied=not self.kept)
        self._machines.append(made)
        return made

    def containers(self) -> list[str]:
        """The ids of all containers, from containerd's folders: they are there also after a crash."""
        return [each.name for each in self.folder.glob(_CONTAINERS)]

    @property
    def alive(self) -> bool:
        return bool(first_processes(self.init))

    def remove(self) -> None:
        """End its machines; remove cgroups and folder."""
        with _alone():
            self._clear()

    def _clear(self) -> None:
        for machine in self._machines:
            machine.off()
        _end(self.init)
        self._remove_cgroups()
        shutil.rmtree(self.folder)
        if self._lock is not None:
            self._lock.close()

    def _remove_cgroups(self) -> None:
        """Those of containers that were still running."""
        homes = [home for each in (CGROUPS, *CGROUPS.iterdir()) if (home := each / "k8s.io").is_dir()]
        for container in self.containers():
            for home in homes:
                _remove_cgroup(home / container)
        for home in homes:
            with contextlib.suppress(OSError):  # another cluster uses it
                home.rmdir()

    def _hold(self) -> bool:
        lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        self._lock = lock
        return True


def base() -> Path:
    return cache_dir().parent.resolve() / "cluster"  # as /proc will name the machines' first process


def runs() -> list[Run]:
    return [Run(each) for each in base().iterdir() if each.is_dir()] if base().exists() else []


def remove_abandoned(*, kept: bool = False) -> list[str]:
    """Runs whose process is dead; with `kept` also those that were to stay. Names what was removed."""
    with _alone():
        abandoned = [run for run in runs() if (kept or not run.kept) and run._hold()]
        for run in abandoned:
            run._clear()
    return [run.folder.name for run in abandoned]


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else makes or sweeps folders meanwhile."""
    base().mkdir(parents=True, exist_ok=True)
    with (base() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _end(init: Path) -> None:
    deadline = time.monotonic() + 30
    while alive := first_processes(init):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {alive} ({init}) do not die")
        time.sleep(0.05)


def _remove_cgroup(folder: Path) -> None:
    """Deepest first; the kernel may need a moment to see that the last process of one is gone."""
    deadline = time.monotonic() + 10
    while folder.exists():
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{folder} cannot be removed: something still runs in it")
        time.sleep(0.01)

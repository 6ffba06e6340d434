"""The collector of what was lost: attachments whose sandbox is gone and whose DEL never came.

The agent runs a `Sweep` every 30 s. Absence from the API proves nothing (informers can be stale, static pods
precede their mirrors, force-deleted pods may still run), so it only starts a check:

- With a namespace recorded: it is missing, or is another one, in two sweeps in a row.
- Without one (azure-ipam): the pod has been absent for five minutes by quorum reads, and the runtime says
  that it has no such sandbox. Where nobody can ask the runtime, never.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

from subnetes.cns.namespaces import Namespaces, is_gone
from subnetes.cns.reconciliation import LOST
from subnetes.ipam.pool import Holder, Key

ABSENT_FOR = 300.0
CONTAINERD = Path("/run/containerd")

Lookup = Callable[[Holder], Awaitable[bool | None]]
"""Whether the holder's pod is there, by a quorum read; None if that could not be found out."""


class Sandboxes(Protocol):
    def lives(self, holder: Holder) -> bool | None:
        """Whether the runtime has this sandbox; None if it cannot be known."""


class UnknownSandboxes:
    """No runtime to ask."""

    def lives(self, holder: Holder) -> bool | None:  # noqa: ARG002
        return None


class ContainerdSandboxes:
    """By the folders that containerd keeps for the tasks of Kubernetes while they run."""

    def __init__(self, root: Path = CONTAINERD) -> None:
        self._tasks = root / "io.containerd.runtime.v2.task" / "k8s.io"

    def lives(self, holder: Holder) -> bool | None:
        if not self._tasks.is_dir() or "/" in holder.container_id:
            return None
        return (self._tasks / holder.container_id).exists()


class Sweep:
    """What it remembers is only a suspicion: an agent that restarts begins anew."""

    def __init__(self, namespaces: Namespaces, sandboxes: Sandboxes, pod_exists: Lookup) -> None:
        self._namespaces = namespaces
        self._sandboxes = sandboxes
        self._pod_exists = pod_exists
        self._missing: set[Key] = set()
        self._absent_since: dict[Key, float] = {}

    async def run(self, holders: Iterable[Holder], now: float) -> list[Key]:
        """The attachments that are surely lost. Called at equal intervals."""
        holders = list(holders)
        missing = {holder.key for holder in holders if is_gone(holder, self._namespaces)}
        lost = missing & self._missing
        self._missing = missing - lost
        unseen = [holder for holder in holders if not holder.netns or not holder.netns_inode]
        lost |= await self._absent(unseen, now)
        return sorted(lost)

    async def _absent(self, holders: list[Holder], now: float) -> set[Key]:
        since = {}
        for holder in holders:
            if self._has_no_sandbox(holder) and await self._pod_exists(holder) is False:
                since[holder.key] = self._absent_since.get(holder.key, now)
        lost = {key for key, first in since.items() if now - first >= ABSENT_FOR}
        self._absent_since = {key: first for key, first in since.items() if key not in lost}
        return lost

    def _has_no_sandbox(self, holder: Holder) -> bool:
        """Asked first: it costs no request, and a sandbox that lives is no question for the API server."""
        known = not holder.container_id.startswith(LOST)
        return known and self._sandboxes.lives(holder) is False

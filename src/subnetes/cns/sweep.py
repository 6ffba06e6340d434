"""The collector of what was lost: attachments whose sandbox is gone and whose DEL never came.

The agent runs a `Sweep` every 30 s. Absence from the API proves nothing (informers can be stale, static pods
precede their mirrors, force-deleted pods may still run), so it only starts a check:

- With a namespace recorded: it is missing, or is another one, in two sweeps in a row.
- Without one (azure-ipam; a sandbox older than the journal): the pod has been absent for five minutes by
  quorum reads, and the runtime says that it has no such sandbox. Where nobody can ask the runtime, never.

What the runtime says lives is never lost.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Protocol

import msgspec

from subnetes.cns.namespaces import Namespaces, is_gone
from subnetes.cns.reconciliation import LOST
from subnetes.ipam.pool import Holder

ABSENT_FOR = 300.0
CONTAINERD = Path("/run/containerd")
_OF_KUBERNETES = "io.kubernetes.cri.sandbox"

Lookup = Callable[[Holder], Awaitable[bool | None]]
"""Whether the holder's pod is there, by a quorum read; None if that could not be found out."""


class Sandboxes(Protocol):
    def lives(self, holder: Holder) -> bool | None:
        """Whether the runtime has this sandbox; None if it cannot be known.

        Of one whose container id begins with LOST only the pod is known: whether that has any sandbox.
        """


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
        if holder.container_id.startswith(LOST):
            return self._has_pod(holder)
        return (self._tasks / holder.container_id).exists()

    def _has_pod(self, holder: Holder) -> bool | None:
        """A task that does not say whose it is may be anybody's."""
        try:
            names = [_pod_of(each) for each in self._tasks.iterdir()]
        except (OSError, msgspec.MsgspecError):
            return None
        if (holder.pod_namespace, holder.pod_name) in names:
            return True
        return None if ("", "") in names else False


class _Bundle(msgspec.Struct):
    annotations: dict[str, str] = {}


def _pod_of(task: Path) -> tuple[str, str]:
    """By what containerd writes on every task that it makes for a kubelet."""
    said = msgspec.json.decode((task / "config.json").read_bytes(), type=_Bundle).annotations
    return said.get(f"{_OF_KUBERNETES}-namespace", ""), said.get(f"{_OF_KUBERNETES}-name", "")


class Sweep:
    """What it remembers is only a suspicion: an agent that restarts begins anew."""

    def __init__(self, namespaces: Namespaces, sandboxes: Sandboxes, pod_exists: Lookup) -> None:
        self._namespaces = namespaces
        self._sandboxes = sandboxes
        self._pod_exists = pod_exists
        self._missing: set[Holder] = set()
        self._absent_since: dict[Holder, float] = {}

    async def run(self, holders: Iterable[Holder], now: float) -> list[Holder]:
        """The attachments that are surely lost, as they were looked at. Called at equal intervals."""
        holders = list(holders)
        missing = {holder for holder in holders if self._is_missing(holder)}
        lost = missing & self._missing
        self._missing = missing - lost
        unseen = [each for each in holders if each.pod_name and not (each.netns and each.netns_inode)]
        lost |= await self._absent(unseen, now)
        return sorted(lost, key=lambda holder: holder.key)

    def _is_missing(self, holder: Holder) -> bool:
        return is_gone(holder, self._namespaces) and self._sandboxes.lives(holder) is not True

    async def _absent(self, holders: list[Holder], now: float) -> set[Holder]:
        """The runtime is asked first: it costs no request, and what lives is no question for the API.

        An API server that does not answer is not asked for each of them.
        """
        since = {}
        for holder in holders:
            exists = await self._pod_exists(holder) if self._sandboxes.lives(holder) is False else True
            if exists is None:
                self._absent_since = {}
                return set()
            if not exists:
                since[holder] = self._absent_since.get(holder, now)
        lost = {holder for holder, first in since.items() if now - first >= ABSENT_FOR}
        self._absent_since = {holder: first for holder, first in since.items() if holder not in lost}
        return lost

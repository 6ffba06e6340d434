"""Whether a sandbox's network namespace still exists: the one witness that an attachment lives.

The sweep and ADD ask it. A path alone is not enough: a runtime may make another namespace under an old name,
so the inode of the file that was there at ADD is compared too. An agent in a mount namespace of its own may
see, instead of the namespace that is mounted there, the plain file below it, and after its restart the other
way round: two different kinds of file prove nothing.
"""

import os
from pathlib import Path
from typing import Protocol

import msgspec

from subnetes.ipam.pool import Holder

_OWN_NETWORK = Path("/proc/self/ns/net")
_OWN_PROCESSES = Path("/proc/self/ns/pid")
_FIRST_PROCESSES = 0xEFFFFFFC  # the inode that the kernel gives to the machine's own pid namespace


class Namespaces(Protocol):
    def inode(self, path: str) -> int | None:
        """The inode of the namespace at this path, None if nothing is there; raises OSError if unknowable.

        Below 0: what is seen there is a plain file.
        """


class HostNamespaces:
    """Those of this machine."""

    def __init__(self) -> None:
        self._device = _OWN_NETWORK.stat().st_dev
        self._sees_processes = _OWN_PROCESSES.stat().st_ino == _FIRST_PROCESSES

    def inode(self, path: str) -> int | None:
        if path.startswith("/proc/") and not self._sees_processes:
            raise OSError(f"{path} is a process of another pid namespace than the agent's")
        try:
            found = os.stat(path)  # noqa: PTH116 - at every ADD: no object for the path
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            if path.startswith("/proc/") or Path(path).parent.is_dir():
                return None
            raise  # the whole folder is missing: it may only be out of this process's sight
        return found.st_ino if found.st_dev == self._device else -found.st_ino


def is_gone(holder: Holder, namespaces: Namespaces) -> bool:
    """Whether the attachment's namespace is surely gone; what cannot be known is not.

    What was never seen (no inode) proves nothing by its absence: the agent may not see the runtime's folder.
    """
    if not holder.netns or not holder.netns_inode:
        return False
    try:
        found = namespaces.inode(holder.netns)
    except OSError:
        return False
    if found is None:
        return True
    return found != holder.netns_inode and (found > 0) == (holder.netns_inode > 0)


def is_elsewhere(now: Holder, before: Holder) -> bool:
    """Whether an attachment that is made once more has another namespace than it had."""
    if not now.netns:
        return False
    return now.netns != before.netns or now.netns_inode not in (0, before.netns_inode)


def seen(holder: Holder, namespaces: Namespaces) -> Holder:
    """The holder with its namespace's inode, as far as it can be seen."""
    if not holder.netns or holder.netns_inode:
        return holder
    try:
        inode = namespaces.inode(holder.netns)
    except OSError:
        return holder
    return msgspec.structs.replace(holder, netns_inode=inode) if inode else holder

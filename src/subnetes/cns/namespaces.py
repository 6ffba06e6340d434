"""Whether a sandbox's network namespace still exists: the one witness that an attachment lives.

The sweep and ADD ask it. A path alone is not enough: a runtime may make another namespace under an old name,
so the inode of the nsfs file that was there at ADD is compared too.
"""

from pathlib import Path
from typing import Protocol

import msgspec

from subnetes.ipam.pool import Holder


class Namespaces(Protocol):
    def inode(self, path: str) -> int | None:
        """The inode of the namespace at this path, None if nothing is there; raises OSError if unknowable."""


class HostNamespaces:
    """Those of this machine."""

    def inode(self, path: str) -> int | None:
        try:
            return Path(path).stat().st_ino
        except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
            if path.startswith("/proc/") or Path(path).parent.is_dir():
                return None
            raise  # the whole folder is missing: it may only be out of this process's sight


def is_gone(holder: Holder, namespaces: Namespaces) -> bool:
    """Whether the attachment's namespace is surely gone; what cannot be known is not.

    What was never seen (no inode) proves nothing by its absence: the agent may not see the runtime's folder.
    """
    if not holder.netns or not holder.netns_inode:
        return False
    try:
        return namespaces.inode(holder.netns) != holder.netns_inode
    except OSError:
        return False


def seen(holder: Holder, namespaces: Namespaces) -> Holder:
    """The holder with its namespace's inode, as far as it can be seen."""
    if not holder.netns or holder.netns_inode:
        return holder
    try:
        inode = namespaces.inode(holder.netns)
    except OSError:
        return holder
    return msgspec.structs.replace(holder, netns_inode=inode) if inode else holder

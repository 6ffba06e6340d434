"""What a node's pool is made of: its IPs, who holds them, and the moves that change it.

The life of an IP:

     Granted, not programmed          Granted, programmed
               │                               │            Assigned
               ▼            Programmed         ▼        ─────────────────▶
      PendingProgramming ────────────────▶ Available                       Assigned
               │                               │        ◀─────────────────
               │ LetGo                         │ LetGo          Freed
               │                               ▼
               └──────────────────────▶ PendingRelease ── Gone ──▶ forgotten

`Gone` also forgets what is Available or PendingProgramming: then the control plane took it away by itself.
There is no way back from PendingRelease: only a new grant, under a new id, makes the address available again.

Every move that is not drawn here is an error, and an error changes nothing:

    PoolError
    ├── UnknownIP         the pool has no IP of this id
    ├── UnknownHolder     nothing is held under this container id and interface
    ├── KnownIP           granted once more: ids are minted for one grant
    ├── AddressTaken      granted under another id while the pool still has it: `Gone` comes first
    ├── AlreadyHolding    this container id and interface hold IPs: a repeated ADD is answered, not assigned
    ├── WrongState        the IP is not in a state that the move starts from
    └── Malformed         an id twice, two IPs of one NC for one holder, or none at all

The agent's journal is a list of moves, so they are structs that msgspec writes and reads.
"""

from enum import StrEnum

import msgspec

Key = tuple[str, str]  # container id, interface name


class State(StrEnum):
    AVAILABLE = "Available"
    ASSIGNED = "Assigned"
    PENDING_PROGRAMMING = "PendingProgramming"
    PENDING_RELEASE = "PendingRelease"


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The attachment of a sandbox that IPs were given to, and what helps to find that sandbox again."""

    container_id: str
    ifname: str
    network: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    netns: str = ""
    netns_inode: int = 0

    @property
    def key(self) -> Key:
        return self.container_id, self.ifname


class IP(msgspec.Struct, frozen=True):
    id: str
    address: str
    nc: str
    state: State
    holder: Holder | None
    since: float
    """When it came into this state."""


class _Move(msgspec.Struct, frozen=True, kw_only=True, tag_field="move", tag=True): ...


class Granted(_Move, frozen=True, kw_only=True):
    nc: str
    ips: tuple[tuple[str, str], ...]
    """Of each its id and its address."""
    at: float
    programmed: bool


class Programmed(_Move, frozen=True, kw_only=True):
    """Whatever the NC had waiting for it; nothing waiting is no error."""

    nc: str
    at: float


class Assigned(_Move, frozen=True, kw_only=True):
    ids: tuple[str, ...]
    """At most one of each NC."""
    holder: Holder
    at: float


class Freed(_Move, frozen=True, kw_only=True):
    """All that is held under this key, to the end of the queue: it rests the longest before it is reused."""

    container_id: str
    ifname: str
    at: float

    @property
    def key(self) -> Key:
        return self.container_id, self.ifname


class LetGo(_Move, frozen=True, kw_only=True):
    ids: tuple[str, ...]
    at: float


class Gone(_Move, frozen=True, kw_only=True):
    ids: tuple[str, ...]
    at: float


Move = Granted | Programmed | Assigned | Freed | LetGo | Gone


class PoolError(Exception): ...


class UnknownIP(PoolError): ...


class UnknownHolder(PoolError): ...


class KnownIP(PoolError): ...


class AddressTaken(PoolError): ...


class AlreadyHolding(PoolError): ...


class WrongState(PoolError): ...


class Malformed(PoolError): ...

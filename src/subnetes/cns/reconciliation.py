"""What the pool must do so that it agrees with what the NNC grants. Pure: the pool, the NNC and the time in,
moves out.

`Ipam.reconcile` calls it at each observation. What must hold:

- An NC whose version is lower than one seen of the same NNC is an old reading and changes nothing.
- An NNC that is missing, or made anew and still empty, takes nothing away; nor is anything handed out until
  an NNC says again what is this node's, for after its grace another node may have it.
- What the NNC lists as released is never handed out, also when the journal that said so is lost.
- A pod's address is never taken from it: what is assigned and no longer granted is kept, and counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig, SecondaryIP
from subnetes.cns.containers import Container, by_id, containers_of, missing
from subnetes.ipam.pool import (
    IP,
    Assigned,
    Gone,
    Granted,
    Holder,
    Key,
    LetGo,
    Move,
    Pool,
    State,
    apply,
    replay,
)

# How the container id begins of a sandbox older than the journal: of its pod only the address is known.
LOST = "unknown-sandbox-of-pod-"

TAKEN = "taken"  # an idle IP left the status though it was not released
IN_USE = "in_use"  # a pod's IP left the status
TWICE = "twice"  # an address was granted under a second id while a pod has it
RELEASED_IN_USE = "released_in_use"  # somebody listed a pod's IP as released
OLD = "old"  # an NC's version fell


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between the pool and the NNC. `ip` is an id, or an NC's for the kind `old`."""

    kind: str
    ip: str
    text: str

    @property
    def stands(self) -> bool:
        """Whether it will still be there when looked at again, so that it is counted only once."""
        return self.kind != TAKEN


@dataclass(frozen=True, slots=True)
class Outcome:
    moves: tuple[Move, ...]
    containers: tuple[Container, ...]
    drift: frozenset[Drift]


def reconcile(pool: Pool, known: Sequence[Container], nnc: NodeNetworkConfig, at: float) -> Outcome:
    """The moves in an order in which each is legal."""
    work = _Work(pool, at, frozenset((nnc.spec and nnc.spec.released_ips) or ()))
    granted = (nnc.status and nnc.status.network_containers) or []
    if not granted:
        work.let_go_listed()
        kept = missing(known) if len(pool) else ()
        return Outcome(tuple(work.moves), kept, frozenset(work.drift))
    containers = tuple(_newest(known, containers_of(nnc)))
    newest = by_id(containers)
    usable = [nc for nc in granted if nc.id]
    fresh = [nc for nc in usable if (nc.version or 0) >= newest[nc.id].version]
    for nc in usable:
        if (nc.version or 0) < newest[nc.id].version:
            work.differ(OLD, nc.id, f"NC {nc.id} fell to version {nc.version}: an old reading, ignored")
    work.forget([nc for nc in pool.ncs if nc not in newest], [])
    work.forget([nc.id for nc in fresh], fresh)
    work.let_go_listed()
    for nc in fresh:
        work.take(nc)
    return Outcome(tuple(work.moves), containers, frozenset(work.drift))


def claimed(pool: Pool, grants: Sequence[Move], claims: Mapping[str, Holder], at: float) -> list[Move]:
    """After these grants: have pods that run keep what they have, one holder with all its addresses."""
    after = replay(grants, pool)
    theirs: dict[Key, tuple[Holder, dict[str, str]]] = {}
    for ip in after:
        holder = claims.get(ip.address)
        if holder is not None and ip.state is State.AVAILABLE:
            theirs.setdefault(holder.key, (holder, {}))[1].setdefault(ip.nc, ip.id)
    return [
        Assigned(ids=tuple(ids.values()), holder=holder, at=at)
        for key, (holder, ids) in theirs.items()
        if not after.by_key(key)
    ]


def _newest(known: Sequence[Container], found: Sequence[Container]) -> Iterator[Container]:
    """What each NC is, by the newest reading of it."""
    before = by_id(known)
    for each in found:
        old = before.get(each.id)
        is_old = old is not None and old.nnc == each.nnc and old.version > each.version
        yield msgspec.structs.replace(old, missing=False) if old is not None and is_old else each


class _Work:
    """The moves so far, and the pool as they leave it."""

    def __init__(self, pool: Pool, at: float, listed: frozenset[str]) -> None:
        self.pool = pool
        self.at = at
        self.listed = listed
        self.moves: list[Move] = []
        self.drift: set[Drift] = set()

    def do(self, move: Move) -> None:
        self.pool = apply(self.pool, move)
        self.moves.append(move)

    def differ(self, kind: str, ip: str, text: str) -> None:
        self.drift.add(Drift(kind, ip, text))

    def forget(self, ncs: Sequence[str], granted: Sequence[NetworkContainer]) -> None:
        """What left the status of these NCs; first, so that a new grant may bring the same address back."""
        still = {ip.id for nc in granted for ip in nc.secondary_ips or ()}
        gone = [ip for nc in ncs for ip in self.pool.of_nc(nc) if ip.id not in still]
        for ip in gone:
            self._missing(ip)
        ids = tuple(ip.id for ip in gone if ip.state is not State.ASSIGNED)
        if ids:
            self.do(Gone(ids=ids, at=self.at))

    def let_go_listed(self) -> None:
        """What the NNC says was released, and the pool knows nothing of it: a journal was lost."""
        ids = []
        for ip_id in sorted(self.listed & self.pool.ids):
            ip = self.pool.ip(ip_id)
            if ip.state is State.ASSIGNED:
                text = (
                    f"{ip.address} is in use, but listed in spec.releasedIPs, which only this agent may write"
                )
                self.differ(RELEASED_IN_USE, ip_id, text)
            elif ip.state is not State.PENDING_RELEASE:
                ids.append(ip_id)
        if ids:
            self.do(LetGo(ids=tuple(ids), at=self.at))

    def take(self, nc: NetworkContainer) -> None:
        """New grants. One that is listed as released is not even for a moment available."""
        here = {ip.address: ip for ip in self.pool}
        usable: dict[str, str] = {}
        released: dict[str, str] = {}
        ids: set[str] = set()
        for ip in nc.secondary_ips or ():
            known = not ip.id or ip.id in self.pool or ip.id in ids
            if ip.address and not known and self._is_free(ip, here):
                ids.add(ip.id)
                (released if ip.id in self.listed else usable).setdefault(ip.address, ip.id)
        if usable:
            self._grant(nc.id, usable, programmed=True)
        if released:
            self._grant(nc.id, released, programmed=False)
            self.do(LetGo(ids=tuple(released.values()), at=self.at))

    def _grant(self, nc: str, ids: dict[str, str], programmed: bool) -> None:
        pairs = tuple((ip_id, address) for address, ip_id in ids.items())
        self.do(Granted(nc=nc, ips=pairs, at=self.at, programmed=programmed))

    def _is_free(self, ip: SecondaryIP, here: Mapping[str, IP]) -> bool:
        other = here.get(ip.address)
        if other is not None:
            text = f"{ip.address} was granted as {ip.id}, but is here as {other.id} ({other.state})"
            self.differ(TWICE, ip.id, text)
        return other is None

    def _missing(self, ip: IP) -> None:
        if ip.state is State.ASSIGNED:
            text = f"{ip.address} is in use, but is not granted any more: it is kept until its pod ends"
            self.differ(IN_USE, ip.id, text)
        elif ip.state is not State.PENDING_RELEASE:
            self.differ(TAKEN, ip.id, f"{ip.address} was taken from this node, which had not released it")

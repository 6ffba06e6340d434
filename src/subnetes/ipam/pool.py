"""The IPs of one node and who holds them: one value, changed only by moves (drawn in `moves.py`).

The agent writes each move to its journal and then applies it, so that the journal, replayed, is the pool. A
move copies a few dictionaries of the pool's size, some 250 entries: microseconds, and the old value stays.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from subnetes.ipam.moves import (
    IP,
    AddressTaken,
    AlreadyHolding,
    Assigned,
    Freed,
    Gone,
    Granted,
    Holder,
    Key,
    KnownIP,
    LetGo,
    Malformed,
    Move,
    PoolError,
    Programmed,
    State,
    UnknownHolder,
    UnknownIP,
    WrongState,
)

__all__ = [
    "IP",
    "AddressTaken",
    "AlreadyHolding",
    "Assigned",
    "Freed",
    "Gone",
    "Granted",
    "Holder",
    "Key",
    "KnownIP",
    "LetGo",
    "Malformed",
    "Move",
    "Pool",
    "PoolError",
    "Programmed",
    "State",
    "UnknownHolder",
    "UnknownIP",
    "WrongState",
    "apply",
    "replay",
]

# The ids of an NC in a state, in the order in which they came to it.
_Queues = dict[tuple[str, State], dict[str, None]]


class Pool:
    """A value: `apply` makes a new one. `Pool()` is empty."""

    __slots__ = ("_addresses", "_held", "_ips", "_queues")

    def __init__(self) -> None:
        self._ips: dict[str, IP] = {}
        self._addresses: dict[str, str] = {}
        self._held: dict[Key, tuple[str, ...]] = {}
        self._queues: _Queues = {}

    def ip(self, ip_id: str) -> IP:
        try:
            return self._ips[ip_id]
        except KeyError:
            raise UnknownIP(f"this node's pool has no IP with the id {ip_id}") from None

    def by_key(self, key: Key) -> list[IP]:
        """What a container's interface holds; nothing, if it is unknown."""
        return [self._ips[ip_id] for ip_id in self._held.get(key, ())]

    def of_nc(self, nc: str) -> list[IP]:
        return [self._ips[ip_id] for state in State for ip_id in self._queues.get((nc, state), ())]

    def in_state(self, nc: str, state: State) -> list[IP]:
        """Those of the NC that are in this state, the one that has been the longest first."""
        return [self._ips[ip_id] for ip_id in self._queues.get((nc, state), ())]

    def count(self, nc: str, state: State) -> int:
        return len(self._queues.get((nc, state), ()))

    def first_available(self, nc: str, n: int = 1) -> list[IP]:
        """Up to `n` that may be assigned, the one that has rested the longest first."""
        return [self._ips[ip_id] for ip_id in islice(self._queues.get((nc, State.AVAILABLE), ()), n)]

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._ips)

    @property
    def ncs(self) -> frozenset[str]:
        """The NCs of which the pool has any IP."""
        return frozenset(nc for nc, _ in self._queues)

    @property
    def keys(self) -> frozenset[Key]:
        """Everyone who holds an IP."""
        return frozenset(self._held)

    def holders(self) -> list[Holder]:
        """Everyone who holds IPs, each once."""
        return [holder for ids in self._held.values() if (holder := self._ips[ids[0]].holder)]

    def moves(self) -> list[Move]:
        """The shortest history of this pool: replayed, it is equal. A journal is compacted to it."""
        return [*self._grants(), *self._assignments(), *self._releases()]

    def __contains__(self, ip_id: object) -> bool:
        return ip_id in self._ips

    def __iter__(self) -> Iterator[IP]:
        return iter(self._ips.values())

    def __len__(self) -> int:
        return len(self._ips)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pool):
            return NotImplemented
        return self._ips == other._ips and self._rest_order() == other._rest_order()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Pool({', '.join(f'{ip.address} {ip.state.value}' for ip in self)})"

    def _rest_order(self) -> dict[str, list[str]]:
        return {nc: list(queue) for (nc, state), queue in self._queues.items() if state is State.AVAILABLE}

    def _grants(self) -> Iterator[Move]:
        for (nc, state), queue in self._queues.items():
            programmed = state is not State.PENDING_PROGRAMMING
            for since, ips in groupby((self._ips[ip_id] for ip_id in queue), lambda ip: ip.since):
                pairs = tuple((ip.id, ip.address) for ip in ips)
                yield Granted(nc=nc, ips=pairs, at=since, programmed=programmed)

    def _assignments(self) -> Iterator[Move]:
        for ids in self._held.values():
            first = self._ips[ids[0]]
            assert first.holder is not None
            yield Assigned(ids=ids, holder=first.holder, at=first.since)

    def _releases(self) -> Iterator[Move]:
        for (_, state), queue in self._queues.items():
            if state is State.PENDING_RELEASE:
                for since, ips in groupby((self._ips[ip_id] for ip_id in queue), lambda ip: ip.since):
                    yield LetGo(ids=tuple(ip.id for ip in ips), at=since)


def apply(pool: Pool, move: Move) -> Pool:
    """The pool after the move. Total: any other outcome is a PoolError, and `pool` is as it was."""
    match move:
        case Granted():
            return _granted(pool, move)
        case Programmed():
            return _programmed(pool, move)
        case Assigned():
            return _assigned(pool, move)
        case Freed():
            return _freed(pool, move)
        case LetGo():
            return _let_go(pool, move)
        case Gone():
            return _gone(pool, move)


def replay(moves: Iterable[Move], pool: Pool | None = None) -> Pool:
    """The pool that a history makes."""
    result = Pool() if pool is None else pool
    for move in moves:
        result = apply(result, move)
    return result


def _granted(pool: Pool, move: Granted) -> Pool:
    state = State.AVAILABLE if move.programmed else State.PENDING_PROGRAMMING
    after = _copied(pool)
    after._addresses = pool._addresses.copy()
    queue = _queue(after, move.nc, state)
    for ip_id, address in move.ips:
        if ip_id in after._ips:
            raise KnownIP(f"{address} was granted to {move.nc} as {ip_id}, which the pool already has")
        if (other := after._addresses.get(address)) is not None:
            raise AddressTaken(f"{address} was granted as {ip_id}, but the pool has it as {other}")
        after._ips[ip_id] = IP(ip_id, address, move.nc, state, None, move.at)
        after._addresses[address] = ip_id
        queue[ip_id] = None
    return _swept(after)


def _programmed(pool: Pool, move: Programmed) -> Pool:
    return _moved(pool, pool.in_state(move.nc, State.PENDING_PROGRAMMING), State.AVAILABLE, None, move.at)


def _assigned(pool: Pool, move: Assigned) -> Pool:
    key = move.holder.key
    if key in pool._held:
        held = ", ".join(ip.address for ip in pool.by_key(key))
        raise AlreadyHolding(f"{_named(key)} already holds {held}")
    ips = _from(pool, move.ids, (State.AVAILABLE,), f"assigned to {_named(key)}")
    if not ips or len({ip.nc for ip in ips}) != len(ips):
        raise Malformed(f"{_named(key)} must get one IP of each of its NCs, not {list(move.ids)}")
    after = _moved(pool, ips, State.ASSIGNED, move.holder, move.at)
    after._held = {**pool._held, key: move.ids}
    return after


def _freed(pool: Pool, move: Freed) -> Pool:
    ips = pool.by_key(move.key)
    if not ips:
        raise UnknownHolder(f"{_named(move.key)} holds no IP of this node's pool")
    after = _moved(pool, ips, State.AVAILABLE, None, move.at)
    after._held = pool._held.copy()
    del after._held[move.key]
    return after


def _let_go(pool: Pool, move: LetGo) -> Pool:
    ips = _from(pool, move.ids, (State.AVAILABLE, State.PENDING_PROGRAMMING), "let go")
    return _moved(pool, ips, State.PENDING_RELEASE, None, move.at)


def _gone(pool: Pool, move: Gone) -> Pool:
    states = (State.AVAILABLE, State.PENDING_PROGRAMMING, State.PENDING_RELEASE)
    ips = _from(pool, move.ids, states, "forgotten")
    after = _taken_out(pool, ips)
    after._addresses = pool._addresses.copy()
    for ip in ips:
        del after._ips[ip.id]
        del after._addresses[ip.address]
    return _swept(after)


def _from(pool: Pool, ids: Sequence[str], states: tuple[State, ...], doing: str) -> list[IP]:
    """The IPs of a move, each once and in a state that the move starts from."""
    if len(ids) > 1 and len(set(ids)) != len(ids):
        raise Malformed(f"an IP is to be {doing} twice: {list(ids)}")
    ips = [pool.ip(ip_id) for ip_id in ids]
    for ip in ips:
        if ip.state not in states:
            holder = f" by {_named(ip.holder.key)}" if ip.holder else ""
            raise WrongState(f"{ip.address} ({ip.id}) is {ip.state.value}{holder} and cannot be {doing}")
    return ips


def _moved(pool: Pool, ips: Sequence[IP], state: State, holder: Holder | None, at: float) -> Pool:
    after = _taken_out(pool, ips)
    for ip in ips:
        after._ips[ip.id] = IP(ip.id, ip.address, ip.nc, state, holder, at)
        _queue(after, ip.nc, state)[ip.id] = None
    return _swept(after)


def _taken_out(pool: Pool, ips: Sequence[IP]) -> Pool:
    """A copy in which these IPs stand in no queue; every queue they stood in is the copy's own."""
    after = _copied(pool)
    for nc, state in {(ip.nc, ip.state) for ip in ips}:
        _queue(after, nc, state)
    for ip in ips:
        del after._queues[ip.nc, ip.state][ip.id]
    return after


def _copied(pool: Pool) -> Pool:
    """Shares with the old value what the caller does not replace: addresses, holders, each queue."""
    after = Pool.__new__(Pool)
    after._ips = pool._ips.copy()
    after._addresses = pool._addresses
    after._held = pool._held
    after._queues = pool._queues.copy()
    return after


def _queue(pool: Pool, nc: str, state: State) -> dict[str, None]:
    queue = pool._queues[nc, state] = pool._queues.get((nc, state), {}).copy()
    return queue


def _swept(pool: Pool) -> Pool:
    """Without empty queues: an NC that is gone leaves nothing."""
    for key in [key for key, queue in pool._queues.items() if not queue]:
        del pool._queues[key]
    return pool


def _named(key: Key) -> str:
    return f"container {key[0]} ({key[1]})"

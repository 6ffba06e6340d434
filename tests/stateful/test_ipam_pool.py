"""The node's pool against a naive model, for legal and illegal moves in any order.

The model is a list of rows that is searched from end to end; each rule tries a move on both, and both must
agree on whether it is legal and on everything that can be asked afterwards.
"""

from collections.abc import Callable
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from subnetes.ipam.pool import (
    Assigned,
    Freed,
    Gone,
    Granted,
    Holder,
    Key,
    LetGo,
    Move,
    Pool,
    PoolError,
    Programmed,
    State,
    apply,
    replay,
)

pytestmark = pytest.mark.slow

NCS = ("v4", "v6")
IDS = st.sampled_from([f"id-{number}" for number in range(10)])
ADDRESSES = st.sampled_from([f"10.0.0.{number}" for number in range(8)])
HOLDERS = st.builds(Holder, st.sampled_from("abc"), st.sampled_from(["eth0", "net1"]))
GRANTS = st.lists(st.tuples(IDS, ADDRESSES), max_size=4).map(tuple)
SOME = st.lists(IDS, max_size=3).map(tuple)
LETTABLE = (State.AVAILABLE, State.PENDING_PROGRAMMING)


@dataclass
class Row:
    id: str
    address: str
    nc: str
    state: State
    since: float
    holder: Holder | None = None


class Illegal(Exception): ...


class Model:
    """Rows in the order in which they came to their state."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def find(self, ids: tuple[str, ...], states: tuple[State, ...]) -> list[Row]:
        rows = [row for wanted in ids for row in self.rows if row.id == wanted and row.state in states]
        if len(rows) != len(ids) or len(set(ids)) != len(ids):
            raise Illegal
        return rows

    def held(self, key: Key) -> list[Row]:
        return [row for row in self.rows if row.holder is not None and row.holder.key == key]

    def put(self, rows: list[Row], state: State, at: float, holder: Holder | None = None) -> None:
        for row in rows:
            self.rows.remove(row)
            row.state, row.since, row.holder = state, at, holder
            self.rows.append(row)

    def granted(self, nc: str, ips: tuple[tuple[str, str], ...], at: float, programmed: bool) -> None:
        ids, addresses = [ip for ip, _ in ips], [address for _, address in ips]
        ids += [row.id for row in self.rows]
        addresses += [row.address for row in self.rows]
        if len(set(ids)) != len(ids) or len(set(addresses)) != len(addresses):
            raise Illegal
        state = State.AVAILABLE if programmed else State.PENDING_PROGRAMMING
        self.rows += [Row(ip, address, nc, state, at) for ip, address in ips]

    def assigned(self, ids: tuple[str, ...], holder: Holder, at: float) -> None:
        rows = self.find(ids, (State.AVAILABLE,))
        if not rows or self.held(holder.key) or len({row.nc for row in rows}) != len(rows):
            raise Illegal
        self.put(rows, State.ASSIGNED, at, holder)

    def freed(self, key: Key, at: float) -> None:
        rows = self.held(key)
        if not rows:
            raise Illegal
        self.put(rows, State.AVAILABLE, at)

    def programmed(self, nc: str, at: float) -> None:
        pending = [row for row in self.rows if row.nc == nc and row.state is State.PENDING_PROGRAMMING]
        self.put(pending, State.AVAILABLE, at)

    def let_go(self, ids: tuple[str, ...], at: float) -> None:
        self.put(self.find(ids, LETTABLE), State.PENDING_RELEASE, at)

    def gone(self, ids: tuple[str, ...]) -> None:
        for row in self.find(ids, (*LETTABLE, State.PENDING_RELEASE)):
            self.rows.remove(row)


class PoolRules(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.model = Model()
        self.pool = Pool()
        self.journal: list[bytes] = []

    def both(self, move: Move, on_model: Callable[[], None]) -> None:
        before, shown = self.pool, self.pool.moves()
        try:
            on_model()
        except Illegal:
            with pytest.raises(PoolError):
                apply(self.pool, move)
        else:
            self.pool = apply(self.pool, move)
            self.journal.append(msgspec.json.encode(move))
        assert before.moves() == shown, "an old value changed"
        self.now += 1

    @rule(
        nc=st.sampled_from(NCS),
        ips=GRANTS,
        programmed=st.booleans(),
    )
    def grant(self, nc: str, ips: tuple[tuple[str, str], ...], programmed: bool) -> None:
        at = self.now
        self.both(
            Granted(nc=nc, ips=ips, at=at, programmed=programmed),
            lambda: self.model.granted(nc, ips, at, programmed),
        )

    @rule(nc=st.sampled_from(NCS))
    def program(self, nc: str) -> None:
        at = self.now
        self.both(Programmed(nc=nc, at=at), lambda: self.model.programmed(nc, at))

    @rule(ids=SOME, holder=HOLDERS)
    def assign(self, ids: tuple[str, ...], holder: Holder) -> None:
        at = self.now
        self.both(Assigned(ids=ids, holder=holder, at=at), lambda: self.model.assigned(ids, holder, at))

    @rule(holder=HOLDERS)
    def assign_what_is_first(self, holder: Holder) -> None:
        self.assign(tuple(ip.id for nc in NCS for ip in self.pool.first_available(nc)), holder)

    @rule(holder=HOLDERS)
    def free(self, holder: Holder) -> None:
        at, (container, ifname) = self.now, holder.key
        self.both(
            Freed(container_id=container, ifname=ifname, at=at), lambda: self.model.freed(holder.key, at)
        )

    @rule(ids=SOME)
    def let_go(self, ids: tuple[str, ...]) -> None:
        at = self.now
        self.both(LetGo(ids=ids, at=at), lambda: self.model.let_go(ids, at))

    @rule(ids=SOME)
    def forget(self, ids: tuple[str, ...]) -> None:
        self.both(Gone(ids=ids, at=self.now), lambda: self.model.gone(ids))

    @precondition(lambda self: bool(self.pool.ids))
    @rule(data=st.data(), releases=st.booleans())
    def one_that_there_is_leaves(self, data: st.DataObject, releases: bool) -> None:
        ids = (data.draw(st.sampled_from(sorted(self.pool.ids))),)
        (self.let_go if releases else self.forget)(ids)

    @invariant()
    def they_answer_alike(self) -> None:
        rows = self.model.rows
        assert self.pool.ids == {row.id for row in rows}
        assert self.pool.ncs == {row.nc for row in rows}
        assert self.pool.keys == {row.holder.key for row in rows if row.holder}
        for row in rows:
            ip = self.pool.ip(row.id)
            assert (ip.address, ip.nc, ip.state) == (row.address, row.nc, row.state)
            assert (ip.since, ip.holder) == (row.since, row.holder)
        for nc in NCS:
            resting = [row.id for row in rows if row.nc == nc and row.state is State.AVAILABLE]
            assert [ip.id for ip in self.pool.first_available(nc, 99)] == resting
            assert {ip.id for ip in self.pool.of_nc(nc)} == {row.id for row in rows if row.nc == nc}
            for state in State:
                count = sum(row.nc == nc and row.state is state for row in rows)
                assert self.pool.count(nc, state) == count

    @invariant()
    def whoever_holds_has_at_most_one_of_each_nc(self) -> None:
        for key in self.pool.keys:
            held = self.pool.by_key(key)
            assert {ip.id for ip in held} == {row.id for row in self.model.held(key)}
            assert len({ip.nc for ip in held}) == len(held) > 0

    @invariant()
    def a_shortened_history_is_the_same_pool(self) -> None:
        assert replay(self.pool.moves()) == self.pool

    def teardown(self) -> None:
        assert replay(msgspec.json.decode(line, type=Move) for line in self.journal) == self.pool


TestPool = PoolRules.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

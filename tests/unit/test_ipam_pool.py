"""The node's pool: each move by example, each illegal one by its error, and the journal's round trip."""

import msgspec
import pytest

from subnetes.ipam.pool import (
    AddressTaken,
    AlreadyHolding,
    Assigned,
    Freed,
    Gone,
    Granted,
    Holder,
    KnownIP,
    LetGo,
    Malformed,
    Move,
    Pool,
    PoolError,
    Programmed,
    State,
    UnknownHolder,
    UnknownIP,
    WrongState,
    apply,
    replay,
)

WEB = Holder("c1", "eth0", pod_namespace="default", pod_name="web", netns="/run/netns/1", netns_inode=7)
DB = Holder("c2", "eth0")


def granted(*ids: str, nc: str = "v4", programmed: bool = True, at: float = 1.0) -> Granted:
    ips = tuple((ip_id, f"10.0.0.{ip_id}") for ip_id in ids)
    return Granted(nc=nc, ips=ips, at=at, programmed=programmed)


def assigned(*ids: str, holder: Holder = WEB, at: float = 2.0) -> Assigned:
    return Assigned(ids=ids, holder=holder, at=at)


def freed(holder: Holder = WEB, at: float = 3.0) -> Freed:
    return Freed(container_id=holder.container_id, ifname=holder.ifname, at=at)


def let_go(*ids: str) -> LetGo:
    return LetGo(ids=ids, at=4.0)


def gone(*ids: str) -> Gone:
    return Gone(ids=ids, at=5.0)


PROGRAMMED = Programmed(nc="v4", at=1.5)


@pytest.mark.parametrize(
    ("history", "state"),
    [
        ([granted("2")], State.AVAILABLE),
        ([granted("2", programmed=False)], State.PENDING_PROGRAMMING),
        ([granted("2", programmed=False), PROGRAMMED], State.AVAILABLE),
        ([granted("2"), assigned("2")], State.ASSIGNED),
        ([granted("2"), assigned("2"), freed()], State.AVAILABLE),
        ([granted("2"), let_go("2")], State.PENDING_RELEASE),
        ([granted("2", programmed=False), let_go("2")], State.PENDING_RELEASE),
        ([granted("2"), PROGRAMMED], State.AVAILABLE),
        ([granted("2", programmed=False), Programmed(nc="other", at=1.0)], State.PENDING_PROGRAMMING),
        ([granted("2"), let_go("2"), PROGRAMMED], State.PENDING_RELEASE),
    ],
)
def test_the_moves_that_are_drawn(history: list[Move], state: State) -> None:
    pool = replay(history)
    assert pool.ip("2").state is state
    assert [pool.count("v4", one) for one in State] == [int(one is state) for one in State]
    assert pool.of_nc("v4") == [pool.ip("2")] == pool.in_state("v4", state)


@pytest.mark.parametrize("last", [[], [let_go("2")]])
@pytest.mark.parametrize("programmed", [True, False])
def test_what_is_gone_is_forgotten(programmed: bool, last: list[Move]) -> None:
    pool = replay([granted("2", programmed=programmed), *last, gone("2")])
    assert pool == Pool()
    assert not any((len(pool), pool.ids, pool.ncs, pool.keys, pool.moves()))
    assert apply(pool, Granted(nc="v4", ips=(("9", "10.0.0.2"),), at=6.0, programmed=True)).ids == {"9"}


HELD = replay([granted("2", "3", "4"), granted("6", nc="v6"), assigned("2", "6"), let_go("4")])


@pytest.mark.parametrize(
    ("move", "error", "says"),
    [
        (granted("3"), KnownIP, "as 3, which the pool already has"),
        (granted("5", "5"), KnownIP, "as 5, which the pool already has"),
        (Granted(nc="v4", ips=(("9", "10.0.0.2"),), at=9.0, programmed=True), AddressTaken, "has it as 2"),
        (Granted(nc="v4", ips=(("9", "10.0.0.4"),), at=9.0, programmed=True), AddressTaken, "has it as 4"),
        (assigned("3"), AlreadyHolding, r"container c1 \(eth0\) already holds 10.0.0.2, 10.0.0.6"),
        (assigned("2", holder=DB), WrongState, r"10.0.0.2 \(2\) is Assigned by container c1 \(eth0\)"),
        (assigned("4", holder=DB), WrongState, "is PendingRelease and cannot be assigned to container c2"),
        (assigned("7", holder=DB), UnknownIP, "no IP with the id 7"),
        (assigned("3", "3", holder=DB), Malformed, "twice"),
        (assigned(holder=DB), Malformed, "one IP of each"),
        (freed(DB), UnknownHolder, r"container c2 \(eth0\) holds no IP"),
        (Freed(container_id="c1", ifname="net1", at=1.0), UnknownHolder, r"container c1 \(net1\)"),
        (let_go("2"), WrongState, "Assigned by container c1"),
        (let_go("3", "2"), WrongState, "cannot be let go"),
        (let_go("4"), WrongState, "is PendingRelease and cannot be let go"),
        (let_go("3", "3"), Malformed, "twice"),
        (let_go("7"), UnknownIP, "no IP with the id 7"),
        (gone("2"), WrongState, "Assigned by container c1"),
        (gone("3", "7"), UnknownIP, "no IP with the id 7"),
        (gone("3", "3"), Malformed, "twice"),
    ],
)
def test_every_other_move_is_an_error_and_changes_nothing(
    move: Move, error: type[PoolError], says: str
) -> None:
    before = repr(HELD), HELD.moves()
    with pytest.raises(error, match=says):
        apply(HELD, move)
    assert (repr(HELD), HELD.moves()) == before


def test_two_ips_of_one_nc_are_not_for_one_holder() -> None:
    with pytest.raises(Malformed, match="one IP of each"):
        apply(replay([granted("2", "3")]), assigned("2", "3"))


def test_a_holder_has_one_of_each_family_and_gives_all_back_at_once() -> None:
    assert [ip.address for ip in HELD.by_key(WEB.key)] == ["10.0.0.2", "10.0.0.6"]
    assert {ip.holder for ip in HELD.by_key(WEB.key)} == {WEB}
    after = apply(HELD, freed(at=7.0))
    assert after.by_key(WEB.key) == []
    assert [(ip.state, ip.holder, ip.since) for ip in (after.ip("2"), after.ip("6"))] == [
        (State.AVAILABLE, None, 7.0),
        (State.AVAILABLE, None, 7.0),
    ]
    assert HELD.keys == {WEB.key}, "the old value has changed"


def test_a_late_freeing_of_an_old_sandbox_leaves_the_new_one_alone() -> None:
    pool = replay([granted("2"), assigned("2"), freed(), assigned("2", holder=DB)])
    with pytest.raises(UnknownHolder):
        apply(pool, freed(WEB))
    assert pool.by_key(DB.key) == [pool.ip("2")]


def test_the_one_that_has_rested_the_longest_comes_first() -> None:
    pool = replay([granted("2", "3", "4"), assigned("2"), assigned("3", holder=DB), freed(DB), freed(WEB)])
    assert [ip.id for ip in pool.first_available("v4", 9)] == ["4", "3", "2"]
    assert [ip.id for ip in pool.first_available("v4")] == ["4"]
    assert pool.first_available("v6") == []


def test_programmed_ips_join_the_queue_behind_those_that_rest() -> None:
    pool = replay([granted("2", "3", programmed=False), granted("4"), PROGRAMMED])
    assert [ip.id for ip in pool.first_available("v4", 3)] == ["4", "2", "3"]


def test_a_history_can_be_shortened() -> None:
    history: list[Move] = [
        granted("2", "3"),
        granted("5", programmed=False, at=1.2),
        granted("6", nc="v6"),
        assigned("2", "6"),
        freed(),
        assigned("3", holder=DB, at=8.0),
        granted("8", at=9.0),
        let_go("8"),
    ]
    pool = replay(history)
    assert replay(pool.moves()) == pool
    assert [ip.id for ip in replay(pool.moves()).first_available("v4", 9)] == ["2"]


def test_pools_with_another_rest_order_are_not_equal() -> None:
    one, other = replay([granted("2"), granted("3")]), replay([granted("3"), granted("2")])
    assert one != other
    assert one == replay([granted("2", "3")])
    assert one != "a pool"


@pytest.mark.parametrize(
    "move",
    [granted("2", "3"), PROGRAMMED, assigned("2", "6"), freed(), let_go("2"), gone("2")],
    ids=lambda move: type(move).__name__,
)
def test_a_journal_can_write_and_read_every_move(move: Move) -> None:
    line = msgspec.json.encode(move)
    assert msgspec.json.decode(line, type=Move) == move

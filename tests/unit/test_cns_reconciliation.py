"""The pool follows what the NNC grants, and nothing that the NNC says takes a pod's address away."""

from __future__ import annotations

from subnetes.api.names import DRAINING
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.cns.containers import Container, containers_of, serving
from subnetes.cns.reconciliation import (
    IN_USE,
    OLD,
    RELEASED_IN_USE,
    TAKEN,
    TWICE,
    Outcome,
    claimed,
    reconcile,
)
from subnetes.ipam.pool import Assigned, Freed, Granted, Holder, LetGo, Move, Pool, State, replay


def container(nc: str = "nc", version: int = 1, **ips: str) -> NetworkContainer:
    return NetworkContainer(
        id=nc,
        version=version,
        subnet_name="blue",
        subnet_address_space="10.0.0.0/24",
        default_gateway="10.0.0.1",
        primary_ip="10.0.0.2",
        secondary_ips=[SecondaryIP(id=ip_id, address=address) for ip_id, address in ips.items()],
    )


def nnc(*containers: NetworkContainer, released: tuple[str, ...] = ()) -> NodeNetworkConfig:
    made = NodeNetworkConfig(
        spec=NodeNetworkConfigSpec(released_ips=list(released)),
        status=NodeNetworkConfigStatus(network_containers=list(containers)),
    )
    made.metadata.name = "node-1"
    return made


def pool(*moves: Move) -> Pool:
    return replay(
        [Granted(nc="nc", ips=(("a", "10.0.0.10"), ("b", "10.0.0.11")), at=0, programmed=True), *moves]
    )


def after(before: Pool, outcome: Outcome) -> Pool:
    return replay(outcome.moves, before)


def states(of: Pool) -> dict[str, State]:
    return {ip.id: ip.state for ip in of}


def kinds(outcome: Outcome) -> set[tuple[str, str]]:
    return {(drift.kind, drift.ip) for drift in outcome.drift}


KNOWN = containers_of(nnc(container(version=5)))
HELD = Assigned(ids=("a",), holder=Holder("c1", "eth0"), at=1)
BOTH = {"a": "10.0.0.10", "b": "10.0.0.11"}


def test_grants_are_available_at_once_and_a_second_look_changes_nothing() -> None:
    seen = nnc(container("nc", 1, **BOTH))
    first = reconcile(Pool(), (), seen, 1.0)
    assert states(after(Pool(), first)) == {"a": State.AVAILABLE, "b": State.AVAILABLE}
    again = reconcile(after(Pool(), first), first.containers, seen, 2.0)
    assert (again.moves, again.drift, again.containers) == ((), frozenset(), first.containers)


def test_what_was_let_go_and_left_the_status_is_forgotten_without_drift() -> None:
    before = pool(LetGo(ids=("a",), at=1))
    outcome = reconcile(before, KNOWN, nnc(container(version=6, b="10.0.0.11")), 2.0)
    assert set(states(after(before, outcome))) == {"b"}
    assert not outcome.drift


def test_what_was_let_go_and_is_still_in_the_status_stays_let_go() -> None:
    before = pool(LetGo(ids=("a",), at=1))
    outcome = reconcile(before, KNOWN, nnc(container(version=6, **BOTH)), 2.0)
    assert states(after(before, outcome))["a"] is State.PENDING_RELEASE


def test_an_idle_ip_that_was_taken_is_forgotten_and_counted() -> None:
    outcome = reconcile(pool(), KNOWN, nnc(container(version=6, b="10.0.0.11")), 2.0)
    assert set(states(after(pool(), outcome))) == {"b"}
    assert kinds(outcome) == {(TAKEN, "a")}


def test_a_pods_ip_that_was_taken_is_kept_and_counted() -> None:
    before = pool(HELD)
    for status in (nnc(container(version=6)), nnc(container("other"))):
        outcome = reconcile(before, KNOWN, status, 2.0)
        assert states(after(before, outcome))["a"] is State.ASSIGNED
        assert (IN_USE, "a") in kinds(outcome)


def test_a_falling_version_changes_nothing() -> None:
    outcome = reconcile(pool(), KNOWN, nnc(container(version=4, c="10.0.0.12")), 2.0)
    assert outcome.moves == ()
    assert outcome.containers == KNOWN
    assert kinds(outcome) == {(OLD, "nc")}


def test_an_nnc_made_anew_and_still_empty_takes_nothing_away() -> None:
    for empty in (nnc(), NodeNetworkConfig()):
        outcome = reconcile(pool(HELD), KNOWN, empty, 2.0)
        assert outcome.moves == ()
        assert [nc.id for nc in outcome.containers] == ["nc"]
        assert serving(outcome.containers) == ()  # but nothing is handed out: others may have it by now
        back = reconcile(pool(HELD), outcome.containers, nnc(container(version=6, **BOTH)), 3.0)
        assert [nc.id for nc in serving(back.containers)] == ["nc"]


def test_an_nnc_without_ncs_leaves_none_where_the_pool_is_empty() -> None:
    assert reconcile(Pool(), KNOWN, nnc(), 2.0).containers == ()


def test_what_is_listed_as_released_is_never_available_though_the_journal_is_lost() -> None:
    outcome = reconcile(Pool(), (), nnc(container("nc", 1, **BOTH), released=("a",)), 2.0)
    for count in range(len(outcome.moves) + 1):  # also when killed between two moves
        part = replay(outcome.moves[:count])
        assert "a" not in part or part.ip("a").state is not State.AVAILABLE
    assert states(after(Pool(), outcome)) == {"a": State.PENDING_RELEASE, "b": State.AVAILABLE}


def test_what_is_listed_as_released_and_idle_here_is_let_go() -> None:
    outcome = reconcile(pool(), KNOWN, nnc(container(version=5, **BOTH), released=("a",)), 2.0)
    assert states(after(pool(), outcome))["a"] is State.PENDING_RELEASE


def test_a_pods_ip_that_somebody_listed_as_released_is_kept_and_counted() -> None:
    outcome = reconcile(pool(HELD), KNOWN, nnc(container(version=5, **BOTH), released=("a",)), 2.0)
    assert outcome.moves == ()
    assert kinds(outcome) == {(RELEASED_IN_USE, "a")}


def test_an_address_comes_back_under_a_new_id() -> None:
    before = pool(LetGo(ids=("a",), at=1))
    outcome = reconcile(before, KNOWN, nnc(container(version=7, b="10.0.0.11", c="10.0.0.10")), 2.0)
    assert states(after(before, outcome)) == {"b": State.AVAILABLE, "c": State.AVAILABLE}


def test_an_address_that_a_pod_has_is_not_taken_under_a_second_id() -> None:
    before = pool(HELD)
    status = nnc(container(version=7, b="10.0.0.11", c="10.0.0.10"))
    outcome = reconcile(before, KNOWN, status, 2.0)
    assert kinds(outcome) == {(IN_USE, "a"), (TWICE, "c")}
    freed = replay([Freed(container_id="c1", ifname="eth0", at=3)], after(before, outcome))
    assert set(states(after(freed, reconcile(freed, outcome.containers, status, 4.0)))) == {"b", "c"}


def test_a_status_that_says_a_thing_twice_is_read_once() -> None:
    doubled = container("nc", 1, **BOTH)
    doubled.secondary_ips = [*(doubled.secondary_ips or ()), SecondaryIP(id="a", address="10.0.0.10")]
    outcome = reconcile(Pool(), (), nnc(doubled, doubled), 1.0)
    assert set(states(after(Pool(), outcome))) == {"a", "b"}


def test_pods_keep_what_they_say_they_have() -> None:
    outcome = reconcile(Pool(), (), nnc(container("nc", 1, **BOTH)), 1.0)
    holder = Holder("pod", "eth0")
    claims = {"10.0.0.10": holder, "10.9.9.9": Holder("other", "eth0")}
    kept = replay(claimed(Pool(), outcome.moves, claims, 1.0), after(Pool(), outcome))
    assert [ip.id for ip in kept.by_key(holder.key)] == ["a"]
    assert kept.ip("b").state is State.AVAILABLE


def test_the_default_network_is_the_first_that_does_not_drain_with_all_its_families() -> None:
    def nc(name: str, subnet: str, family: int = 4, draining: bool = False) -> Container:
        return Container(name, subnet, "", 24, family=family, draining=draining)

    all_of_them = [nc("old", "red", draining=True), nc("4", "blue"), nc("6", "blue", 6), nc("x", "green")]
    assert [each.id for each in serving(all_of_them)] == ["4", "6"]
    assert [each.id for each in serving(all_of_them, "green")] == ["x"]
    assert serving(all_of_them, "red") == ()


def test_what_an_nc_says_of_its_family_and_prefix() -> None:
    four = nnc(container())
    four.metadata.annotations = {DRAINING: "x, nc"}
    (found,) = containers_of(four)
    assert (found.family, found.prefix_length, found.gateway, found.draining) == (4, 24, "10.0.0.1", True)
    six = NetworkContainer(id="6", subnet_address_space_v6="fd00::/64", default_gateway_v6="fd00::1")
    (found,) = containers_of(nnc(six))
    assert (found.family, found.prefix_length, found.gateway) == (6, 64, "fd00::1")
    (found,) = containers_of(nnc(NetworkContainer(id="f", primary_ip="10.0.0.2/20", version=None)))
    assert (found.family, found.prefix_length, found.primary, found.version) == (4, 20, "10.0.0.2", 0)


def test_a_lower_version_in_another_nnc_is_no_old_reading() -> None:
    anew = nnc(container(version=1, c="10.0.0.12"))
    anew.metadata.uid = "another"
    outcome = reconcile(pool(), KNOWN, anew, 2.0)
    assert set(states(after(pool(), outcome))) == {"c"}
    assert [nc.version for nc in outcome.containers] == [1]


def test_an_id_that_stands_twice_in_the_status_counts_once_and_no_address_is_none() -> None:
    seen = nnc(container(a="10.0.0.10"))
    assert seen.status is not None
    assert seen.status.network_containers is not None
    (found,) = seen.status.network_containers
    twice = [SecondaryIP(id="a", address=f"10.0.0.{i}") for i in (10, 11)]
    found.secondary_ips = [*twice, SecondaryIP(id="b", address="")]
    outcome = reconcile(Pool(), (), seen, 1.0)
    assert [ip.address for ip in after(Pool(), outcome)] == ["10.0.0.10"]

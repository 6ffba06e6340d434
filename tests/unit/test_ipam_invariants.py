"""The checker finds each kind of fault that is planted in a clean cluster, and nothing in a clean one."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnetes.ipam.invariants import check, compare, standing
from subnetes.ipam.moves import IP, Holder, State
from subnetes.ipam.snapshot import (
    Container,
    Grant,
    NodeConfig,
    NodeFabric,
    NodePool,
    PodRecord,
    RoundTrip,
    Sandbox,
    Snapshot,
    Violation,
    Writer,
)

Mutation = Callable[[Snapshot], Snapshot]


def container(node: int, count: int) -> Container:
    grants = tuple(Grant(f"ip-{node}-{i}", f"10.0.{node}.{i + 10}") for i in range(count))
    return Container(f"nc-{node}", f"n{node}", "s", "", "10.0.0.0/16", f"10.0.{node}.1", 3, grants)


def holder(node: int, i: int) -> Holder:
    return Holder(f"box-{node}-{i}", "eth0", "net", "default", f"p-{node}-{i}", f"uid-{node}-{i}", "/run/x")


def ip(nc: Container, i: int, state: State) -> IP:
    node = int(nc.node[1:])
    held = holder(node, i) if state is State.ASSIGNED else None
    return IP(nc.secondary[i].id, nc.secondary[i].address, nc.id, state, held, 0.0)


def cluster(sizes: list[tuple[int, int]]) -> Snapshot:
    """Of each node: how many IPs it has, and how many of them pods use."""
    ncs = [container(node, size) for node, (size, _) in enumerate(sizes)]
    states = [[State.ASSIGNED if i < used else State.AVAILABLE for i in range(size)] for size, used in sizes]
    pools = [
        tuple(ip(nc, i, state) for i, state in enumerate(of)) for nc, of in zip(ncs, states, strict=True)
    ]
    users = [(node, i, each.address) for node, pool in enumerate(pools) for i, each in enumerate(pool)]
    live = [(node, i, address) for node, i, address in users if i < sizes[node][1]]
    agent = Writer("subnetes-agent", "", ("spec.secondaryIPs", "spec.releasedIPs"))
    granter = Writer("subnetes-controller", "status", ("status.networkContainers",))
    return Snapshot(
        dnc=tuple(ncs),
        configs=tuple(
            NodeConfig(nc.node, (nc,), {nc.id: len(nc.secondary)}, (), 250, (agent, granter)) for nc in ncs
        ),
        pools=tuple(
            NodePool(f"n{node}", pool, pool, f"/state/{node}/journal") for node, pool in enumerate(pools)
        ),
        pods=tuple(
            PodRecord("default", f"p-{node}-{i}", f"uid-{node}-{i}", f"n{node}", (address,))
            for node, i, address in live
        ),
        sandboxes={
            f"n{node}": tuple(
                Sandbox(f"n{node}", f"box-{node}-{i}", "eth0", (address,))
                for on, i, address in live
                if on == node
            )
            for node in range(len(sizes))
        },
        fabrics=tuple(NodeFabric(nc.node, "fabric", True, ("br-fabric",), True, "1.2.3.4") for nc in ncs),
        satisfied=tuple((nc.node, "fabric") for nc in ncs),
        trips=(RoundTrip("NNC n0", {"spec": {"a": [1, None]}}, {"spec": {"a": [1, None]}}),),
    )


CLEAN = cluster([(4, 2), (3, 1), (0, 0)])


def change(items: tuple[Any, ...], index: int, **fields: Any) -> tuple[Any, ...]:
    return (*items[:index], _replaced(items[index], **fields), *items[index + 1 :])


def _replaced(item: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(item, **fields) if isinstance(item, IP) else replace(item, **fields)


def dnc_has(snapshot: Snapshot, index: int, **fields: Any) -> Snapshot:
    return replace(snapshot, dnc=change(snapshot.dnc or (), index, **fields))


def nnc_has(snapshot: Snapshot, index: int, **fields: Any) -> Snapshot:
    return replace(snapshot, configs=change(snapshot.configs, index, **fields))


def status_has(snapshot: Snapshot, index: int, **fields: Any) -> Snapshot:
    return nnc_has(snapshot, index, containers=change(snapshot.configs[index].containers, 0, **fields))


def journal_has(snapshot: Snapshot, index: int, at: int, **fields: Any) -> Snapshot:
    """In the journal and in the agent's memory, which is not what is wrong here."""
    journal = change(snapshot.pools[index].journal, at, **fields)
    return replace(snapshot, pools=change(snapshot.pools, index, journal=journal, memory=journal))


def without(ips: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return ips[:at] + ips[at + 1 :]


def forget(snapshot: Snapshot, index: int, at: int) -> Snapshot:
    """DNC and the status no longer have a grant."""
    left = without(CLEAN.configs[index].containers[0].secondary, at)
    return dnc_has(status_has(snapshot, index, secondary=left), index, secondary=left)


MINE, THEIRS = CLEAN.configs[0].containers[0], CLEAN.configs[1].containers[0]
FREE = {"state": State.AVAILABLE, "holder": None}
FAULTS: dict[str, tuple[int, str, Mutation]] = {
    "DNC gives an address twice": (
        1,
        THEIRS.secondary[0].address,
        lambda s: dnc_has(s, 0, secondary=(*MINE.secondary, Grant("new", THEIRS.secondary[0].address))),
    ),
    "a primary is another's secondary": (
        1,
        THEIRS.primary,
        lambda s: dnc_has(s, 0, secondary=(*MINE.secondary, Grant("new", THEIRS.primary))),
    ),
    "two statuses have an address": (
        1,
        THEIRS.secondary[1].address,
        lambda s: status_has(s, 0, secondary=(*MINE.secondary, Grant("new", THEIRS.secondary[1].address))),
    ),
    "two journals have an address": (
        1,
        THEIRS.secondary[1].address,
        lambda s: journal_has(s, 0, 3, address=THEIRS.secondary[1].address),
    ),
    "one id for two addresses": (
        1,
        MINE.secondary[0].id,
        lambda s: dnc_has(s, 0, secondary=(*MINE.secondary, Grant(MINE.secondary[0].id, "10.0.9.9"))),
    ),
    "two pods have an address": (
        1,
        MINE.secondary[0].address,
        lambda s: replace(s, pods=change(s.pods or (), 2, addresses=(MINE.secondary[0].address,))),
    ),
    "another pod has what the journal gave": (
        1,
        MINE.secondary[0].address,
        lambda s: replace(s, pods=change(s.pods or (), 0, uid="other")),
    ),
    "in use, and DNC has it free": (
        2,
        MINE.secondary[0].address,
        lambda s: dnc_has(s, 0, secondary=MINE.secondary[1:]),
    ),
    "in use, and let go": (
        2,
        MINE.secondary[0].address,
        lambda s: nnc_has(s, 0, released=(MINE.secondary[0].id,)),
    ),
    "a pod's address is nobody's": (
        2,
        "10.0.77.7",
        lambda s: replace(s, pods=(*(s.pods or ()), PodRecord("d", "x", "u", "n2", ("10.0.77.7",)))),
    ),
    "DNC keeps what no status has": (
        3,
        MINE.secondary[3].address,
        lambda s: status_has(s, 0, secondary=MINE.secondary[:3]),
    ),
    "DNC keeps an NC of no NNC": (3, "nc-9", lambda s: replace(s, dnc=(*(s.dnc or ()), container(9, 1)))),
    "a status has what DNC has not": (
        3,
        MINE.secondary[3].address,
        lambda s: dnc_has(s, 0, secondary=MINE.secondary[:3]),
    ),
    "a journal lacks a grant": (
        3,
        MINE.secondary[3].address,
        lambda s: replace(
            s, pools=change(s.pools, 0, journal=s.pools[0].journal[:3], memory=s.pools[0].journal[:3])
        ),
    ),
    "a journal has what is no longer granted": (3, MINE.secondary[3].address, lambda s: forget(s, 0, 3)),
    "a release that nobody took": (
        3,
        MINE.secondary[3].id,
        lambda s: journal_has(
            nnc_has(s, 0, released=(MINE.secondary[3].id,)), 0, 3, state=State.PENDING_RELEASE
        ),
    ),
    "DNC keeps what has left": (
        3,
        "10.0.5.5",
        lambda s: dnc_has(s, 0, leaving=(Grant("left", "10.0.5.5"),)),
    ),
    "assigned to a sandbox that is gone": (
        3,
        MINE.secondary[0].address,
        lambda s: replace(s, sandboxes=dict(s.sandboxes) | {"n0": s.sandboxes["n0"][1:]}),
    ),
    "assigned to a pod that is gone": (
        3,
        MINE.secondary[0].address,
        lambda s: replace(s, sandboxes={}, pods=(s.pods or ())[1:]),
    ),
    "memory forgot": (
        4,
        MINE.secondary[0].id,
        lambda s: replace(s, pools=change(s.pools, 0, memory=s.pools[0].journal[1:])),
    ),
    "memory assigned what the journal did not": (
        4,
        MINE.secondary[1].id,
        lambda s: replace(s, pools=change(s.pools, 0, memory=change(s.pools[0].journal, 1, **FREE))),
    ),
    "let go and Available": (
        5,
        MINE.secondary[3].address,
        lambda s: nnc_has(s, 0, released=(MINE.secondary[3].id,)),
    ),
    "a target for no NC": (6, "nc-gone", lambda s: nnc_has(s, 0, targets={MINE.id: 4, "nc-gone": 1})),
    "a target above the maximum": (6, "251", lambda s: nnc_has(s, 0, targets={MINE.id: 251})),
    "a target that is a difference": (6, "-2", lambda s: nnc_has(s, 0, targets={MINE.id: -2})),
    "a target below what is in use": (6, MINE.id, lambda s: nnc_has(s, 0, targets={MINE.id: 1})),
    "a sandbox lost its IP": (
        7,
        MINE.secondary[0].address,
        lambda s: journal_has(replace(s, pods=()), 0, 0, **FREE),
    ),
    "a pod lost its IP": (
        7,
        MINE.secondary[0].address,
        lambda s: journal_has(replace(s, sandboxes={}), 0, 0, **FREE),
    ),
    "a sandbox's IP is another's": (
        7,
        MINE.secondary[0].address,
        lambda s: journal_has(replace(s, pods=()), 0, 0, holder=holder(0, 3)),
    ),
    "another node's NC is asked for": (
        8,
        THEIRS.id,
        lambda s: nnc_has(s, 0, targets={MINE.id: 4, THEIRS.id: 1}),
    ),
    "another node's IP is let go": (
        8,
        THEIRS.secondary[0].id,
        lambda s: nnc_has(s, 0, released=(THEIRS.secondary[0].id,)),
    ),
    "DNC-RC wrote a request": (
        8,
        "spec.secondaryIPs",
        lambda s: nnc_has(s, 0, writers=(Writer("subnetes-controller", "", ("spec.secondaryIPs",)),)),
    ),
    "an agent wrote a status": (
        8,
        "status.status",
        lambda s: nnc_has(s, 0, writers=(Writer("subnetes-agent", "status", ("status.status",)),)),
    ),
    "a stranger wrote a request": (
        8,
        "kubectl-edit",
        lambda s: nnc_has(
            s,
            0,
            writers=(*s.configs[0].writers, Writer("kubectl-edit", "", ("spec.releasedIPs",))),
        ),
    ),
    "a field is lost": (
        9,
        ".spec.b.c",
        lambda s: replace(s, trips=(RoundTrip("NNC n0", {"spec": {"b": {"c": 0}}}, {"spec": {"b": {}}}),)),
    ),
    "an item is lost": (9, ".a", lambda s: replace(s, trips=(RoundTrip("x", {"a": [1, 2]}, {"a": [1]}),))),
    "ready without devices": (
        10,
        "status.devices",
        lambda s: replace(s, fabrics=change(s.fabrics, 0, devices=())),
    ),
    "ready without a tunnel": (
        10,
        "VTEP",
        lambda s: replace(s, fabrics=change(s.fabrics, 0, tunnel_end="")),
    ),
    "a label without a network": (10, "label", lambda s: replace(s, fabrics=s.fabrics[1:])),
}


def test_a_clean_cluster_is_clean() -> None:
    assert check(CLEAN, settled=True) == []


def test_every_number_is_planted() -> None:
    assert {number for number, _, _ in FAULTS.values()} == set(range(1, 11))


@pytest.mark.parametrize(("number", "named", "mutate"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_and_named(number: int, named: str, mutate: Mutation) -> None:
    found = check(mutate(CLEAN), settled=True)
    assert any(each.number == number and named in each.text for each in found), found


@pytest.mark.parametrize("name", [name for name, (number, _, _) in FAULTS.items() if number == 3])
def test_a_leak_is_one_only_after_the_dust_has_settled(name: str) -> None:
    found = check(FAULTS[name][2](CLEAN), settled=False)
    assert not [each for each in found if each.number == 3]


@pytest.mark.parametrize(("number", "named", "mutate"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told_once_and_alike_in_every_reading(number: int, named: str, mutate: Mutation) -> None:
    first, second = (check(mutate(CLEAN), settled=True) for _ in range(2))
    assert standing(first, second) == second
    assert len({(each.number, each.subject) for each in second}) == len(second)
    assert standing([], second) == []


NODES = st.lists(
    st.integers(0, 8).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size))), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(NODES)
def test_any_clean_cluster_is_clean(sizes: list[tuple[int, int]]) -> None:
    assert check(cluster(sizes), settled=True) == []


@settings(max_examples=60, deadline=None)
@given(NODES.filter(lambda sizes: any(size for size, _ in sizes)), st.data())
def test_an_address_given_twice_is_always_found(sizes: list[tuple[int, int]], data: st.DataObject) -> None:
    clean = cluster(sizes)
    victim = data.draw(st.sampled_from([nc for nc in clean.statuses() if nc.secondary]))
    address = data.draw(st.sampled_from(victim.secondary)).address
    thief = data.draw(st.integers(0, len(sizes) - 1))
    grants = (*clean.configs[thief].containers[0].secondary, Grant("stolen", address))
    found = check(status_has(clean, thief, secondary=grants), settled=False)
    assert (1, address) in {(each.number, each.subject) for each in found}


MOVED = MINE.secondary[3]
OTHERS = (*THEIRS.secondary, Grant("new", MOVED.address))


def letting_go() -> Snapshot:
    """DNC has taken note of what a node let go, and keeps it until the status no longer shows it."""
    asked = nnc_has(CLEAN, 0, released=(MOVED.id,), targets={MINE.id: 3})
    taken = dnc_has(asked, 0, secondary=MINE.secondary[:3], leaving=(MOVED,))
    return journal_has(taken, 0, 3, state=State.PENDING_RELEASE)


def test_what_is_on_its_way_back_has_one_owner() -> None:
    assert check(letting_go(), settled=False) == []
    assert {each.number for each in check(letting_go(), settled=True)} == {3}


def test_what_the_status_no_longer_shows_may_be_anothers_before_the_agent_knows() -> None:
    shown = status_has(dnc_has(letting_go(), 0, leaving=()), 0, secondary=MINE.secondary[:3])
    moved = status_has(dnc_has(shown, 1, secondary=OTHERS), 1, secondary=OTHERS)
    assert check(moved, settled=False) == []


def test_what_is_given_on_before_the_status_shows_it_has_two_owners() -> None:
    early = dnc_has(dnc_has(letting_go(), 0, leaving=()), 1, secondary=OTHERS)
    found = check(status_has(early, 1, secondary=OTHERS), settled=False)
    assert [(each.number, each.subject) for each in found] == [(1, MOVED.address)]


def test_the_same_address_in_two_networks_is_two_addresses() -> None:
    other = Container("nc-x", "n9", "s", "other", "10.0.0.0/16", MINE.primary, 1, (Grant("x", "10.0.0.10"),))
    snapshot = replace(
        CLEAN, dnc=(*(CLEAN.dnc or ()), other), configs=(*CLEAN.configs, NodeConfig("n9", (other,)))
    )
    assert check(snapshot, settled=True) == []


def test_the_network_of_an_nc_is_dncs_word_whatever_another_control_plane_called_it() -> None:
    assert check(status_has(CLEAN, 0, network="their-vnet"), settled=True) == []


def test_addresses_compare_however_they_are_written() -> None:
    six = Container("a", "n7", "s", "", "fd00::/64", "fd00::1/64", 1)
    also = Container("b", "n8", "s", "", "fd00::/64", "fd00:0::0001", 1)
    found = check(Snapshot(configs=(NodeConfig("n7", (six,)), NodeConfig("n8", (also,)))), settled=True)
    assert [(each.number, each.subject) for each in found] == [(1, "fd00::1")]


def test_the_journal_of_a_machine_that_is_no_node_any_more_claims_nothing() -> None:
    taken = replace(
        CLEAN, configs=CLEAN.configs[1:], dnc=(CLEAN.dnc or ())[1:], pods=(), fabrics=(), satisfied=()
    )
    assert check(taken, settled=True) == []


def test_pods_with_addresses_of_others_are_none_of_our_business() -> None:
    stranger = PodRecord("d", "x", "u", "n0", ("192.168.1.1", "not an address"))
    assert check(replace(CLEAN, pods=(*(CLEAN.pods or ()), stranger)), settled=True) == []


def test_a_pod_that_is_going_may_have_lost_its_address() -> None:
    freed = journal_has(replace(CLEAN, sandboxes={}), 0, 0, **FREE)
    going = replace(freed, pods=change(freed.pods or (), 0, terminating=True))
    assert check(going, settled=True) == []


def test_what_was_not_read_is_not_judged() -> None:
    assert check(Snapshot(configs=CLEAN.configs), settled=True) == []
    assert check(replace(CLEAN, dnc=None), settled=True) == []


def test_without_dnc_the_statuses_are_the_record() -> None:
    found = check(status_has(replace(CLEAN, dnc=None), 0, secondary=MINE.secondary[1:]), settled=False)
    assert (2, MINE.secondary[0].address) in {(each.number, each.subject) for each in found}


def test_what_was_let_go_does_not_come_back() -> None:
    before = journal_has(CLEAN, 0, 3, state=State.PENDING_RELEASE)
    assert compare(CLEAN, before) == []
    assert compare(before, before) == []
    assert compare(before, CLEAN) == [
        Violation(
            5,
            MINE.secondary[3].id,
            "10.0.0.13 (ip-0-3) of node n0 was let go and is Available again; "
            "see the journal: /state/0/journal",
        )
    ]


def test_the_version_of_an_nc_never_falls() -> None:
    assert compare(CLEAN, status_has(CLEAN, 0, version=4)) == []
    assert [each.number for each in compare(CLEAN, status_has(CLEAN, 0, version=2))] == [5]

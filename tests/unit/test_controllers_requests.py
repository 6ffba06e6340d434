"""What a node asks for, and what becomes of it in its status."""

from typing import Any

import pytest

from subnetes.api import names
from subnetes.api.meta import Condition
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
)
from subnetes.controllers import status
from subnetes.controllers.requests import Ask, read
from subnetes.dnc.types import NC, SecondaryIP, SubnetKey


def nc(name: str, *ips: str, target: int = 0) -> NC:
    secondary = tuple(SecondaryIP(each, f"10.0.0.{10 + number}") for number, each in enumerate(ips))
    key = SubnetKey("", "pods", 4)
    return NC(name, "local", "n", key, "10.0.0.4", 3, secondary, target, 0, "10.0.0.1", "10.0.0.0/24")


def nnc(wanted: dict[str, int] | None, released: list[str] | None = None) -> NodeNetworkConfig:
    return NodeNetworkConfig(spec=NodeNetworkConfigSpec(secondary_ips=wanted, released_ips=released))


def test_each_nc_is_told_its_target_and_all_releases_but_the_other_ncs_own() -> None:
    request = read(nnc({"a": 3, "b": 1}, ["y", "x", "stray"]), [nc("a", "x"), nc("b", "y")], 250)
    assert request.asks == {"a": Ask(3, ("stray", "x")), "b": Ask(1, ("stray", "y"))}
    assert (request.unknown, request.cut) == ((), 0)


def test_an_nc_that_is_not_mentioned_or_drains_asks_for_nothing() -> None:
    request = read(nnc({"b": 5}), [nc("a", "x"), nc("b", "y")], 250, draining={"b"})
    assert request.asks == {"a": Ask(0, ()), "b": Ask(0, ())}
    assert read(NodeNetworkConfig(), [nc("a")], 250).asks == {"a": Ask(0, ())}


def test_a_carried_count_is_for_the_first_nc_that_stays_while_the_spec_says_nothing() -> None:
    asked = nnc(None, ["x"])
    asked.metadata.annotations = {names.CONVERSION: '{"requestedIPCount":300}'}
    request = read(asked, [nc("a", "x"), nc("b")], 250, draining={"a"})
    assert request.asks == {"a": Ask(0, ("x",)), "b": Ask(250, ())}
    assert (request.unknown, request.cut) == ((), 50)
    assert read(asked, [], 250).asks == {}
    for stated in ({}, {"b": 1}):
        said = nnc(stated)
        said.metadata.annotations = asked.metadata.annotations
        assert read(said, [nc("a")], 250).asks == {"a": Ask(0, ())}


def carried(count: int) -> NodeNetworkConfig:
    asked = nnc(None)
    asked.metadata.annotations = {names.CONVERSION: f'{{"requestedIPCount":{count}}}'}
    return asked


def in_v1alpha(wanted: dict[str, int], *fields: str) -> NodeNetworkConfig:
    """As conversion shows it, and the API server who wrote it."""
    asked = nnc(wanted)
    owned: dict[str, Any] = {"f:spec": {"f:requestedIPCount": {}}}
    asked.metadata.managed_fields = [{"apiVersion": "acn.azure.com/v1alpha", "fieldsV1": owned}]
    for each in fields:
        ours: dict[str, Any] = {"f:spec": {each: {}}}
        asked.metadata.managed_fields.append({"apiVersion": "acn.azure.com/v1beta1", "fieldsV1": ours})
    return asked


def targets(asked: NodeNetworkConfig, *ncs: NC, maximum: int = 250, draining: str = "") -> dict[str, int]:
    return {name: ask.target for name, ask in read(asked, ncs, maximum, draining).asks.items()}


def test_of_a_carried_count_the_first_nc_gets_what_the_others_do_not_have() -> None:
    assert targets(carried(3), nc("a"), nc("b", "x", "y"), draining="b") == {"a": 1, "b": 0}
    assert targets(carried(3), nc("a"), nc("b", "x", "y")) == {"a": 1, "b": 0}
    assert targets(carried(3), nc("a", "v", "w"), nc("b")) == {"a": 3, "b": 0}
    assert targets(carried(1), nc("a"), nc("b", "x", "y"), draining="b") == {"a": 0, "b": 0}


def test_what_v1alpha_asked_of_an_nc_that_is_gone_is_for_the_first_one_that_stays() -> None:
    request = read(in_v1alpha({"gone": 4, "c": 2}), [nc("a"), nc("b"), nc("c")], 250, draining={"a"})
    assert {name: ask.target for name, ask in request.asks.items()} == {"a": 0, "b": 4, "c": 2}
    assert request.unknown == ()
    assert targets(in_v1alpha({"gone": 4, "a": 2}), nc("a")) == {"a": 6}
    assert targets(in_v1alpha({"gone": 4}), nc("a"), nc("b", "x", "y", "z"), draining="b") == {"a": 1, "b": 0}
    assert targets(in_v1alpha({"gone": 4, "b": 3}), nc("a"), nc("b", "x", "y", "z")) == {"a": 4, "b": 3}


def test_who_writes_ids_and_what_the_node_shows_is_taken_by_its_word() -> None:
    for asked in (nnc({"gone": 4}), in_v1alpha({"gone": 4}, "f:secondaryIPs")):
        request = read(asked, [nc("a")], 250)
        assert (request.asks["a"].target, request.unknown) == (0, ("gone",))
    asked = in_v1alpha({"stranger": 4})
    asked.status = NodeNetworkConfigStatus(network_containers=[NetworkContainer(id="stranger")])
    request = read(asked, [nc("a")], 250)
    assert (request.asks["a"].target, request.unknown) == (0, ("stranger",)), "it is one of the node's NCs"
    assert read(in_v1alpha({"gone": 4}), [nc("a")], 250, draining={"a"}).unknown == ("gone",)


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_is_held_above_a_target_uses_up_the_maximum(first: str) -> None:
    held = [nc("a"), nc("b", "x", "y", "z")]
    ncs = held if first == "a" else held[::-1]
    request = read(nnc({"a": 9, "b": 1}), ncs, 5)
    assert {name: ask.target for name, ask in request.asks.items()} == {"a": 2, "b": 1}
    assert request.cut == 7
    assert targets(nnc({"a": 9}), *ncs, maximum=2) == {"a": 0, "b": 0}
    assert targets(nnc({"a": 9, "b": 3}), *ncs, maximum=5) == {"a": 2, "b": 3}


def test_what_is_let_go_leaves_room_at_once_unless_it_is_in_use() -> None:
    asked, ncs = nnc({"a": 3, "b": 1}, ["x", "y"]), [nc("a"), nc("b", "x", "y", "z")]
    assert read(asked, ncs, 4).asks == {"a": Ask(3, ()), "b": Ask(1, ("x", "y"))}
    assert read(asked, ncs, 4, in_use={"y"}).asks == {"a": Ask(2, ()), "b": Ask(1, ("x",))}


def test_the_sum_is_cut_at_the_maximum_and_strangers_are_named() -> None:
    request = read(nnc({"a": 200, "b": 100, "ghost": 1}), [nc("a"), nc("b")], 250)
    assert [request.asks[name].target for name in "ab"] == [200, 50]
    assert (request.unknown, request.cut) == (("ghost",), 50)


def test_dnc_is_told_only_what_is_news() -> None:
    assert not Ask(2, ()).is_news_to(nc("a", "x", "y", target=2))
    assert Ask(2, ("x",)).is_news_to(nc("a", "x", "y", target=2))
    assert Ask(1, ()).is_news_to(nc("a", "x", "y", target=2))
    assert Ask(3, ()).is_news_to(nc("a", "x", target=3)), "who waits asks again"


def test_what_others_wrote_into_a_network_container_is_kept() -> None:
    before = NetworkContainer(
        id="a",
        primary_ip="10.0.0.4/24",
        mac_address="00:0d:3a:00:00:01",
        vnet_id="old",
        type="overlay",
        unknown={"x": 1},
    )
    after = status.container(nc("a", "x"), "192.0.2.1", 2, before)
    assert (after.primary_ip, after.mac_address, after.vnet_id, after.type) == (
        *("10.0.0.4/24", "00:0d:3a:00:00:01"),
        *("old", "overlay"),
    )
    assert after.unknown == {"x": 1}
    assert (after.status, after.version, after.secondary_ip_count) == (status.FULL, 3, 1)


def test_full_is_news_only_once() -> None:
    full = status.container(nc("a"), "", 1, None)
    fine = status.container(nc("a"), "", 0, None)
    assert status.newly_full([], [full]) == ["pods"]
    assert status.newly_full([fine], [full]) == ["pods"]
    assert status.newly_full([full], [full]) == []


def observed(kind: str, holds: str, at: str, message: str = "") -> Condition:
    return Condition(type=kind, status=holds, reason="Why", message=message, last_transition_time=at)


def test_a_condition_keeps_its_time_until_it_changes_sides() -> None:
    old = [observed("Ready", "True", "t1"), observed("Foreign", "True", "t1"), observed("Past", "True", "t1")]
    new = [observed("Ready", "True", "t2", "new text"), observed("Fresh", "False", "t2")]
    merged = {each.type: each for each in status.with_conditions(old, new, gone=["Past"])}
    assert set(merged) == {"Foreign", "Fresh", "Ready"}
    assert (merged["Ready"].last_transition_time, merged["Ready"].message) == ("t1", "new text")
    (flipped,) = status.with_conditions(old[:1], [observed("Ready", "False", "t3")])
    assert flipped.last_transition_time == "t3"


def test_times_are_read_as_written_and_nonsense_is_long_ago() -> None:
    assert status.seconds(status.timestamp(1_700_000_000.9)) == 1_700_000_000.0
    assert status.seconds("yesterday") == 0.0

"""Scaler precedence, replication, and what the nodes of a subnet would hold."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnetes.api import names
from subnetes.api.clustersubnet import (
    ClusterSubnet,
    ClusterSubnetSpec,
    ClusterSubnetStatus,
    Scaler,
    ScalerOverride,
)
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigSpec,
    NodeNetworkConfigStatus,
)
from subnetes.controllers import scalers, subnet_status
from subnetes.controllers.projection import Projection
from subnetes.controllers.subnet_status import Level
from subnetes.ipam.exhaustion import contribution, old_contribution
from subnetes.ipam.scaling import DEFAULT


def test_an_override_rules_field_by_field_over_what_was_imported_over_the_default() -> None:
    imported = Scaler(batch=10, buffer=0.3)
    assert scalers.chosen(None, None) == Scaler(batch=16, buffer=0.5)
    assert scalers.chosen(ScalerOverride(batch=4), imported) == Scaler(batch=4, buffer=0.3)
    assert scalers.chosen(ScalerOverride(buffer=0.0), imported) == Scaler(batch=10, buffer=0.0)


def test_the_commonest_scaler_is_imported_and_on_a_tie_the_larger_batch() -> None:
    def text(batch: int, percent: int) -> str:
        return scalers.annotation(Scaler(batch=batch, buffer=percent / 100), 250)

    garbage = ["", "{", "[]", '{"batchSize":"x"}', '{"batchSize":0,"requestThresholdPercent":50}']
    garbage += 3 * ['{"batchSize":251,"requestThresholdPercent":50}']
    garbage += 3 * ['{"batchSize":16,"requestThresholdPercent":1001}']
    assert scalers.commonest([text(8, 50), text(8, 50), text(32, 50), *garbage]) == Scaler(
        batch=8, buffer=0.5
    )
    assert scalers.commonest([text(8, 50), text(32, 10)]) == Scaler(batch=32, buffer=0.1)
    assert scalers.commonest(garbage) is None


@given(st.integers(1, 250), st.integers(0, 1000))
def test_what_is_annotated_is_imported_as_it_was(batch: int, percent: int) -> None:
    values = Scaler(batch=batch, buffer=percent / 100)
    assert scalers.commonest([scalers.annotation(values, 250)]) == values
    assert scalers.from_text(scalers.to_text(values)) == values


def test_what_a_node_asks_for_above_its_maximum_does_not_keep_a_subnet_exhausted() -> None:
    def asking(count: int, annotations: dict[str, str] | None = None) -> NodeNetworkConfig:
        containers = [NetworkContainer(id=each, subnet_name="pods", primary_ip="10.0.0.4") for each in "xy"]
        return NodeNetworkConfig(
            metadata=ObjectMeta(name="a", namespace="kube-system", annotations=annotations),
            spec=NodeNetworkConfigSpec(secondary_ips={"x": count, "y": count}),
            status=NodeNetworkConfigStatus(network_containers=containers),
        )

    def projected(nnc: NodeNetworkConfig) -> int:
        projection = Projection()
        projection.changed(None, nnc)
        return projection.of("pods", 4, DEFAULT)

    thirty = {names.SCALER: scalers.annotation(Scaler(batch=16, buffer=0.5), 30)}
    assert projected(asking(10)) == 2 * contribution(DEFAULT, 10, 240)
    assert projected(asking(10**9)) == 251 + contribution(DEFAULT, 0, 125)
    assert projected(asking(20, thirty)) == 21 + 16, "of 30, 20 are asked for; the other may have half"
    assert projected(asking(0, thirty)) == 2 * 16
    assert projected(asking(12, thirty)) == 2 * (18 + 1), "no buffer makes it more"
    assert projected(asking(10**9, {names.SCALER: "{"})) == projected(asking(10**9))


def carrying(scaler: dict[str, int], beside: str | None = None) -> dict[str, str]:
    """The annotations of an NNC whose status.scaler an older control plane wrote."""
    carried = {"scaler": {"value": scaler} | ({"beside": beside} if beside else {})}
    return {names.CONVERSION: json.dumps(carried)} | ({names.SCALER: beside} if beside else {})


def test_what_an_older_control_plane_said_counts_until_newer_values_are_written() -> None:
    old = {"batchSize": 10, "requestThresholdPercent": 30, "maxIPCount": 30}
    ours = scalers.annotation(Scaler(batch=16, buffer=0.5), 40)
    for annotations in (carrying(old), carrying(old, beside=ours)):
        assert scalers.commonest([scalers.said(annotations)]) == Scaler(batch=10, buffer=0.3)
        assert scalers.imported_maximum(annotations) == 30
    written = carrying(old) | {names.SCALER: ours}
    assert scalers.said(written) == ours
    assert scalers.imported_maximum(written) is None
    assert scalers.imported_maximum(written | {names.IMPORTED_MAX: "30"}) == 30
    assert scalers.maximum_in(carrying(old)) == 30
    assert scalers.maximum_in(written) == 40
    assert (scalers.said(None), scalers.imported_maximum(None)) == ("", None)


@pytest.mark.parametrize("stated", [0, -1, 250, 251, 10**9])
def test_an_nnc_cannot_raise_its_nodes_maximum(stated: int) -> None:
    assert scalers.imported_maximum(carrying({"maxIPCount": stated})) is None


def owning(version: str, *fields: str, subresource: str = "") -> dict[str, Any]:
    inside: dict[str, Any] = {f"f:{field}": {} for field in fields}
    entry = {"manager": version, "apiVersion": f"acn.azure.com/{version}", "fieldsV1": {"f:spec": inside}}
    return entry | ({"subresource": subresource} if subresource else {})


@pytest.mark.parametrize(
    ("managed", "is_old"),
    [
        (None, False),
        ([owning("v1alpha", "requestedIPCount", "ipsNotInUse")], True),
        ([owning("v1alpha", "requestedIPCount"), owning("v1beta1", "releasedIPs")], True),
        ([owning("v1alpha", "requestedIPCount"), owning("v1beta1", "secondaryIPs")], False),
        ([owning("v1alpha", "ipsNotInUse")], False),
        ([owning("v1alpha", "requestedIPCount", subresource="status")], False),
        ([{"apiVersion": "acn.azure.com/v1alpha"}, {"fieldsV1": {}}, {}], False),
    ],
)
def test_what_an_agent_of_old_asked_for_counts_as_it_scales(
    managed: list[dict[str, Any]] | None, is_old: bool
) -> None:
    asking = nnc("a", {"nc-1": "pods"}, {"nc-1": 8})
    asking.metadata.managed_fields = managed
    projection = Projection()
    projection.changed(None, asking)
    expected = old_contribution(DEFAULT, 8, 250) if is_old else contribution(DEFAULT, 8, 250)
    assert projection.of("pods", 4, DEFAULT) == expected
    projection.changed(asking, None)
    assert projection.of("pods", 4, DEFAULT) == 0


def test_what_stands_under_the_id_of_an_nc_that_is_gone_counts_where_it_is_granted() -> None:
    asking = nnc("a", {"nc-0": "red", "nc-1": "blue"}, {"nc-9": 20})
    asking.metadata.managed_fields = [owning("v1alpha", "requestedIPCount")]
    asking.metadata.annotations = {names.DRAINING: "a-nc-0,a-nc-7"}
    projection = Projection()
    projection.changed(None, asking)
    assert projection.of("blue", 4, DEFAULT) == old_contribution(DEFAULT, 20, 250)
    assert projection.of("red", 4, DEFAULT) == old_contribution(DEFAULT, 0, 230)


@pytest.mark.parametrize("text", ["", "0", "-1", "250", "x", "٣", "1" * 5000])
def test_a_maximum_that_we_cannot_have_written_down_is_none(text: str) -> None:
    written = {names.IMPORTED_MAX: text}
    assert scalers.imported_maximum(written) is None
    assert scalers.imported_maximum(written | carrying({"maxIPCount": 30})) == 30


def test_what_depends_on_state_is_refused_with_the_limit() -> None:
    assert scalers.problem_with(ScalerOverride(batch=250, buffer=10.0), 250) == ""
    assert scalers.problem_with(None, 0) == ""
    assert scalers.problem_with(ScalerOverride(batch=14), None) == ""
    assert "250" in scalers.problem_with(ScalerOverride(batch=251), 10_000)
    assert "13" in scalers.problem_with(ScalerOverride(batch=14), 13)
    assert "10.01" in scalers.problem_with(ScalerOverride(buffer=10.01), 13)


def test_a_refused_override_leaves_the_values_in_use() -> None:
    subnet = ClusterSubnet(
        spec=ClusterSubnetSpec(scaler=ScalerOverride(batch=999)),
        status=ClusterSubnetStatus(scaler=Scaler(batch=7, buffer=2.0)),
    )
    settled = subnet_status.scaler(subnet, [Level(4, 253, 0)])
    assert settled.scaler == Scaler(batch=7, buffer=2.0)
    assert "999" in settled.problem


def test_of_two_families_the_scarcer_one_is_shown_and_either_exhausts() -> None:
    subnet = ClusterSubnet(metadata=ObjectMeta(name="pods"))
    levels = (Level(4, 100, 95), Level(6, 2**64, 96))
    settled = subnet_status.scaler(subnet, levels)
    status = subnet_status.compose(subnet, subnet_status.good(levels), settled, {4: 95, 6: 96}, [])
    assert (status.capacity, status.reserved, status.exhausted) == (100, 95, True)
    huge = (Level(6, 2**64, 96),)
    status = subnet_status.compose(subnet, subnet_status.good(huge), settled, {6: 96}, [])
    assert (status.capacity, status.exhausted) == (2**53 - 1, False)


def test_without_figures_everything_known_stands() -> None:
    subnet = ClusterSubnet(status=ClusterSubnetStatus(capacity=5, reserved=5, exhausted=True))
    settled = subnet_status.scaler(subnet, ())
    status = subnet_status.compose(subnet, subnet_status.invalid("why"), settled, {}, [])
    assert (status.capacity, status.reserved, status.exhausted) == (5, 5, True)


requests = st.dictionaries(st.sampled_from(["nc-1", "nc-2"]), st.integers(0, 40), max_size=2)
placed = st.dictionaries(st.sampled_from(["nc-1", "nc-2"]), st.sampled_from(["red", "blue"]), max_size=2)
changes = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.tuples(placed, requests)), min_size=1, max_size=20
)


def nnc(node: str, placement: dict[str, str], wanted: dict[str, int]) -> NodeNetworkConfig:
    containers = [
        NetworkContainer(id=f"{node}-{nc}", subnet_name=subnet, primary_ip="10.0.0.9")
        for nc, subnet in placement.items()
    ]
    return NodeNetworkConfig(
        metadata=ObjectMeta(name=node),
        spec=NodeNetworkConfigSpec(secondary_ips={f"{node}-{nc}": count for nc, count in wanted.items()}),
        status=NodeNetworkConfigStatus(network_containers=containers),
    )


@settings(max_examples=60, deadline=None)
@given(changes)
def test_the_projection_kept_change_by_change_is_the_one_counted_anew(
    history: list[tuple[str, tuple[dict[str, str], dict[str, int]] | None]],
) -> None:
    kept, known = Projection(), dict[str, NodeNetworkConfig]()
    for node, state in history:
        new = nnc(node, *state) if state else None
        kept.changed(known.get(node), new)
        if new is None:
            known.pop(node, None)
        else:
            known[node] = new
    for subnet in ("red", "blue"):
        expected = sum(
            contribution(DEFAULT, (each.spec.secondary_ips or {}).get(nc.id, 0) if each.spec else 0, 200)
            for each in known.values()
            for nc in (each.status.network_containers if each.status else None) or ()
            if nc.subnet_name == subnet
        )
        assert kept.of(subnet, 4, DEFAULT) == expected
        assert kept.of(subnet, 6, DEFAULT) == 0

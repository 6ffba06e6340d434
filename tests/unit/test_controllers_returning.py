"""The record of a returning node: one place counts, at every moment."""

from subnetes.api import names
from subnetes.api.core import ConfigMap
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.controllers.returning import config_map, is_the_record, name_for, read


def nnc(uid: str, *, served: bool) -> NodeNetworkConfig:
    nc = NetworkContainer(
        id="nc", primary_ip="10.0.0.4", secondary_ips=[SecondaryIP(id="i", address="10.0.0.5")]
    )
    status = NodeNetworkConfigStatus(network_containers=[nc], status="Updated") if served else None
    return NodeNetworkConfig(metadata=ObjectMeta(name="a", uid=uid), status=status)


def test_what_is_stashed_is_read_back() -> None:
    old = nnc("old", served=True)
    made = config_map(old, "kube-system", 1000.0)
    assert names.RETURNING in (made.metadata.labels or {})
    stash = read(made)
    assert stash is not None
    assert (stash.node, stash.uid, stash.at) == ("a", "old", 1000.0)
    assert old.status is not None
    assert list(stash.containers) == old.status.network_containers


def test_the_stash_counts_from_the_old_nncs_end_to_the_new_ones_status() -> None:
    stash = read(config_map(nnc("old", served=True), "kube-system", 0.0))
    assert stash is not None
    for found, counts in (
        (nnc("old", served=True), False),
        (None, True),
        (nnc("new", served=False), True),
        (nnc("new", served=True), False),
    ):
        assert is_the_record(stash, {"a": found}.get) is counts


def test_strange_config_maps_are_passed_over() -> None:
    good = config_map(nnc("old", served=True), "kube-system", 0.0).data or {}
    for data in (None, {}, good | {"status": "{"}, {"node": "a"}):
        assert read(ConfigMap(data=data)) is None


def test_the_longest_node_name_still_gives_a_valid_name() -> None:
    assert name_for("a") == "returning-nnc-a"
    assert len(name_for("n" * 253)) <= 253
    assert name_for("n" * 253) != name_for("n" * 252 + "m")

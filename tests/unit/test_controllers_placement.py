"""Which subnets a node draws from."""

from typing import Any

import pytest

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec, ClusterSubnetStatus
from subnetes.api.core import Node
from subnetes.api.meta import ObjectMeta, ObjectMetaView
from subnetes.api.selector import LabelRequirement, LabelSelector
from subnetes.controllers.declarations import declarations_of
from subnetes.controllers.placement import drawn_from, keys_of, maximum_of, selects
from subnetes.dnc.types import Declaration, SubnetKey


def node(annotations: dict[str, str] | None = None, **labels: str) -> Node:
    return Node(metadata=ObjectMetaView(name="n", labels=labels, annotations=annotations))


def subnet(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> ClusterSubnet:
    return ClusterSubnet(
        metadata=ObjectMeta(name=name, creation_timestamp=created),
        spec=ClusterSubnetSpec(**({"address_space": ["10.0.0.0/24"]} | spec)),
        status=ClusterSubnetStatus(capacity=253),
    )


def unbound(_name: str) -> frozenset[str]:
    return frozenset()


def names_of(found: list[ClusterSubnet]) -> list[str]:
    return [each.metadata.name for each in found]


def rule(operator: str, *values: str) -> LabelSelector:
    requirement = LabelRequirement(key="zone", operator=operator, values=list(values) or None)
    return LabelSelector(match_expressions=[requirement])


@pytest.mark.parametrize(
    ("selector", "with_zone", "without"),
    [
        (None, True, True),
        (LabelSelector(), True, True),
        (LabelSelector(match_labels={"zone": "1"}), True, False),
        (LabelSelector(match_labels={"zone": "2"}), False, False),
        (rule("In", "1", "3"), True, False),
        (rule("NotIn", "1"), False, True),
        (rule("NotIn", "2"), True, True),
        (rule("Exists"), True, False),
        (rule("DoesNotExist"), False, True),
        (rule("Gt", "0"), False, False),
    ],
)
def test_selectors_mean_what_they_mean_in_kubernetes(
    selector: LabelSelector | None, with_zone: bool, without: bool
) -> None:
    assert (selects(selector, {"zone": "1"}), selects(selector, {})) == (with_zone, without)


def test_a_node_draws_from_the_oldest_unbound_subnet_that_selects_it() -> None:
    subnets = [
        subnet("younger", "2026-02-01T00:00:00Z"),
        subnet("b-old"),
        subnet("a-old"),
        subnet("oldest", "2025-01-01T00:00:00Z", node_selector=LabelSelector(match_labels={"zone": "2"})),
    ]
    assert names_of(drawn_from(node(zone="1"), subnets, unbound)) == ["a-old"]
    assert names_of(drawn_from(node(zone="2"), subnets, unbound)) == ["oldest"]


def test_bound_subnets_serve_the_nodes_that_are_ready_for_their_network() -> None:
    bound = {"red": frozenset({"fabric"}), "blue": frozenset({"other", "fabric"})}
    subnets = [subnet("plain"), subnet("red"), subnet("blue")]
    ready = Node(metadata=ObjectMetaView(name="n", labels={"networking.subnetes.io/fabric": "true"}))
    unready = Node(metadata=ObjectMetaView(name="n", labels={"networking.subnetes.io/fabric": "false"}))

    def lookup(name: str) -> frozenset[str]:
        return bound.get(name, frozenset())

    assert names_of(drawn_from(ready, subnets, lookup)) == ["plain", "blue", "red"]
    assert names_of(drawn_from(unready, subnets, lookup)) == ["plain"]


def test_a_subnet_counts_from_its_acceptance_to_its_deletion() -> None:
    fresh, going = subnet("fresh"), subnet("going")
    fresh.status = ClusterSubnetStatus()
    going.metadata.deletion_timestamp = "2026-01-02T00:00:00Z"
    assert drawn_from(node(), [fresh, going], unbound) == []


def test_each_family_is_a_subnet_of_its_own_with_its_own_gateway_and_excludes() -> None:
    both = subnet(
        "pods",
        address_space=["fd00::/64", "10.0.0.0/24"],
        gateway=["10.0.0.254", "fd00::ff"],
        exclude=["fd00::5-fd00::9", "10.0.0.7"],
        network_id="net",
    )
    four, six = keys_of(both)
    assert (four, six) == (SubnetKey("net", "pods", 4), SubnetKey("net", "pods", 6))
    assert declarations_of(both) == [
        Declaration(four, "10.0.0.0/24", "10.0.0.254", ("10.0.0.7",)),
        Declaration(six, "fd00::/64", "fd00::ff", ("fd00::5-fd00::9",)),
    ]


@pytest.mark.parametrize(
    ("stated", "maximum"),
    [("30", 30), (" 7 ", 7), ("0", 0), ("-1", 250), ("many", 250), ("", 250), ("²", 250), ("9" * 5000, 250)],
)
def test_a_nodes_maximum_is_its_annotation_if_that_is_a_number(stated: str, maximum: int) -> None:
    assert maximum_of(node({names.MAX_IPS: stated})) == maximum
    assert maximum_of(node()) == 250

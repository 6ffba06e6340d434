"""Which change is whose business: nobody is looked at who is not concerned."""

from typing import Any

import msgspec

from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetSpec, ClusterSubnetStatus, Scaler
from subnetes.api.core import Node, NodeAddress, NodeCondition, NodeStatusView
from subnetes.api.meta import ObjectMeta, ObjectMetaView
from subnetes.api.network import Network, NetworkConf, NetworkSpec, NetworkStatus, VLANConf
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig, NodeNetworkConfigStatus
from subnetes.api.selector import LabelSelector
from subnetes.controllers.projection import Projection
from subnetes.controllers.routes import Routes
from subnetes.controllers.term import empty_stores
from subnetes.kube.key import Key

NS = "kube-system"


class Cluster:
    def __init__(self) -> None:
        self.stores = empty_stores()
        self.asked: list[tuple[str, str]] = []
        self.routes = Routes(
            NS,
            self.stores,
            Projection(),
            node=lambda key, _: self.asked.append(("node", key.name)),
            nnc=lambda key, _: self.asked.append(("nnc", key.name)),
            subnet=lambda key, _: self.asked.append(("subnet", key.name)),
        )

    def heard(self) -> list[tuple[str, str]]:
        heard, self.asked = self.asked, []
        return heard


def node(name: str, zone: str = "1", **changes: Any) -> Node:
    return Node(metadata=ObjectMetaView(name=name, uid=name, labels={"zone": zone}), **changes)


def subnet(zone: str | None = None, **status: Any) -> ClusterSubnet:
    selector = LabelSelector(match_labels={"zone": zone}) if zone else None
    return ClusterSubnet(
        metadata=ObjectMeta(name="pods", namespace=NS),
        spec=ClusterSubnetSpec(address_space=["10.0.0.0/24"], node_selector=selector),
        status=ClusterSubnetStatus(**status) if status else None,
    )


def holder(name: str) -> NodeNetworkConfig:
    nc = NetworkContainer(id=f"nc-{name}", subnet_name="pods", primary_ip="10.0.0.4")
    return NodeNetworkConfig(
        metadata=ObjectMeta(name=name, namespace=NS), status=NodeNetworkConfigStatus(network_containers=[nc])
    )


def test_a_heartbeat_concerns_nobody_and_an_address_does() -> None:
    cluster, beat = Cluster(), NodeStatusView(conditions=[NodeCondition(type="Ready", status="True")])
    cluster.routes.node_changed(node("a"), node("a", status=beat))
    assert cluster.heard() == []
    moved = NodeStatusView(addresses=[NodeAddress(type="InternalIP", address="192.0.2.1")])
    cluster.routes.node_changed(node("a"), node("a", status=moved))
    cluster.routes.node_changed(None, node("b"))
    assert cluster.heard() == [("node", "a"), ("nnc", "a"), ("node", "b"), ("nnc", "b")]


def test_a_subnets_selector_concerns_whom_it_selects_or_selected() -> None:
    cluster = Cluster()
    for name, zone in (("a", "1"), ("b", "2"), ("c", "3")):
        cluster.stores.nodes.put(node(name, zone))
    cluster.routes.subnet_changed(subnet("1", capacity=9), subnet("2", capacity=9))
    assert cluster.heard() == [("subnet", "pods"), ("nnc", "a"), ("nnc", "b")]
    cluster.routes.subnet_changed(
        subnet("2", capacity=9), subnet("2", capacity=9, reserved=3, exhausted=True)
    )
    assert cluster.heard() == [("subnet", "pods")]


def test_a_scaler_concerns_the_nodes_that_draw_from_the_subnet() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.stores.nodes.put(node(name))
    cluster.stores.nncs.put(holder("b"))
    before = subnet(capacity=9, scaler=Scaler(batch=16, buffer=0.5))
    cluster.routes.subnet_changed(before, subnet(capacity=9, scaler=Scaler(batch=8, buffer=0.5)))
    assert cluster.heard() == [("subnet", "pods"), ("nnc", "b")]


def test_an_nnc_concerns_itself_and_the_subnets_in_which_its_request_changed() -> None:
    cluster, before = Cluster(), holder("a")
    cluster.routes.nnc_changed(None, before)
    assert cluster.heard() == [("subnet", "pods"), ("nnc", "a")]
    cluster.routes.nnc_changed(before, msgspec.structs.replace(before, metadata=ObjectMeta(name="a")))
    assert cluster.heard() == [("nnc", "a")]
    cluster.routes.nnc_changed(before, None)
    assert sorted(cluster.heard()) == [("nnc", "a"), ("node", "a"), ("subnet", "pods")]


def test_a_network_concerns_the_nodes_of_the_subnet_that_it_names() -> None:
    cluster = Cluster()
    cluster.stores.nodes.put(node("a"))
    cluster.stores.subnets.put(subnet(capacity=9))
    conf = NetworkConf(vlan_conf=VLANConf(vid=7))
    named = Network(spec=NetworkSpec(cluster_network_name="cn", conf=conf, subnet_name="pods"))
    other = Network(spec=NetworkSpec(cluster_network_name="cn", conf=conf))
    cluster.routes.network_changed(None, other)
    assert cluster.heard() == []
    cluster.routes.network_changed(other, named)
    assert cluster.heard() == [("nnc", "a")]
    assert cluster.stores.subnets.get(Key(NS, "pods")) is not None
    cluster.routes.network_changed(named, msgspec.structs.replace(named, status=NetworkStatus()))
    assert cluster.heard() == [], "its status changes whenever a node comes or goes"

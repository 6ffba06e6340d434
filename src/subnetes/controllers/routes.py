"""Which change is whose business: turns what informers tell into keys of the three controllers.

Nothing here costs a look at the whole cluster, except what concerns it all: a subnet that appears, goes, or
changes whom it selects. A Node's heartbeat concerns nobody.
"""

from collections.abc import Callable, Iterable

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node
from subnetes.api.network import Network
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.placement import internal_ip, matters, selects
from subnetes.controllers.projection import Projection
from subnetes.controllers.term import Stores
from subnetes.kube.key import Key

Enqueue = Callable[[Key, float], None]
SOON = 0.1  # seconds in which what many nodes do at once becomes one look at their subnet


class Routes:
    def __init__(
        self,
        namespace: str,
        stores: Stores,
        projection: Projection,
        *,
        node: Enqueue,
        nnc: Enqueue,
        subnet: Enqueue,
    ) -> None:
        self._namespace = namespace
        self._stores = stores
        self._projection = projection
        self._node = node
        self._nnc = nnc
        self._subnet = subnet

    def look_at_nnc(self, node: str) -> None:
        self._nnc(Key(self._namespace, node), 0.0)

    def look_at_subnet(self, name: str) -> None:
        self._subnet(Key(self._namespace, name), SOON)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _relevant(old) == _relevant(new):
            return
        seen = new or old
        assert seen is not None
        self._node(Key("", seen.metadata.name), 0.0)
        self.look_at_nnc(seen.metadata.name)

    def nnc_changed(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        seen = new or old
        assert seen is not None
        for name in self._projection.changed(old, new):
            self.look_at_subnet(name)
        self.look_at_nnc(seen.metadata.name)
        if new is None:
            self._node(Key("", seen.metadata.name), 0.0)

    def subnet_changed(self, old: ClusterSubnet | None, new: ClusterSubnet | None) -> None:
        seen = new or old
        assert seen is not None
        self._subnet(Key(self._namespace, seen.metadata.name), 0.0)
        if old is None or new is None or matters(old) != matters(new):
            for node in self._selected([each for each in (old, new) if each is not None]):
                self.look_at_nnc(node)
        elif _scaler(old) != _scaler(new):
            for nnc in self._stores.holders(seen.metadata.name):
                self.look_at_nnc(nnc.metadata.name)

    def network_changed(self, old: Network | None, new: Network | None) -> None:
        if old is not None and new is not None and _binding(old) == _binding(new):
            return  # its status, which changes as often as nodes come and go
        named = {each.spec.subnet_name for each in (old, new) if each is not None}
        subnets = [self._stores.subnets.get(Key(self._namespace, name)) for name in named if name]
        for node in self._selected([each for each in subnets if each is not None]):
            self.look_at_nnc(node)

    def _selected(self, subnets: Iterable[ClusterSubnet]) -> list[str]:
        """The nodes that one of the subnets selects, or that hold something of it."""
        chosen = set[str]()
        for subnet in subnets:
            chosen |= {nnc.metadata.name for nnc in self._stores.holders(subnet.metadata.name)}
            selector = subnet.spec.node_selector
            for node in self._stores.nodes:
                if selects(selector, node.metadata.labels or {}):
                    chosen.add(node.metadata.name)
        return sorted(chosen)


def _relevant(node: Node) -> tuple[object, ...]:
    metadata = node.metadata
    return metadata.uid, metadata.labels, metadata.annotations, metadata.deletion_timestamp, internal_ip(node)


def _binding(network: Network) -> tuple[object, ...]:
    gone = network.metadata.deletion_timestamp is not None
    return network.spec.subnet_name, network.spec.cluster_network_name, gone


def _scaler(subnet: ClusterSubnet) -> object:
    return subnet.status.scaler if subnet.status else None

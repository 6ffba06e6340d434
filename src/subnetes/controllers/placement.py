"""Which subnets a node draws from: pure. The node, NNC and ClusterSubnet controllers ask here.

A ClusterSubnet that a Network names is bound to that Network's ClusterNetwork: the nodes that are ready for
it (they have its label) draw from it. Of the others, a node draws from the oldest one that selects it. A
subnet counts from the moment that DNC accepted its declaration (its status then has a capacity) until its
deletion.
"""

from collections.abc import Callable, Iterable, Mapping

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node
from subnetes.api.networkclass import NETWORKING
from subnetes.api.selector import LabelRequirement, LabelSelector
from subnetes.dnc.types import SubnetKey
from subnetes.ipam.scaling import DEFAULT_MAXIMUM

_DIGITS = 9  # of a number of IPs

Labels = Mapping[str, str]
Bound = Callable[[str], frozenset[str]]
"""The ClusterNetworks that the subnet of this name serves; none if no Network names it."""


def selects(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether all that the selector states holds; an absent one selects everything."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    return all(_holds(requirement, labels) for requirement in selector.match_expressions or ())


def _holds(requirement: LabelRequirement, labels: Labels) -> bool:
    value, wanted = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False  # an operator that a newer API server may know: better nobody than everybody


def may_serve(subnet: ClusterSubnet, node: Node) -> bool:
    """Whether the node could draw from it, as far as the two of them can say."""
    usable = subnet.metadata.deletion_timestamp is None and declared(subnet)
    return usable and selects(subnet.spec.node_selector, node.metadata.labels or {})


def declared(subnet: ClusterSubnet) -> bool:
    return subnet.status is not None and subnet.status.capacity is not None


def drawn_from(node: Node, subnets: Iterable[ClusterSubnet], bound: Bound) -> list[ClusterSubnet]:
    """The subnets that the node draws from: the default network's first, then bound ones by name."""
    unbound, ready = list[ClusterSubnet](), list[ClusterSubnet]()
    for subnet in subnets:
        if may_serve(subnet, node):
            networks = bound(subnet.metadata.name)
            if not networks:
                unbound.append(subnet)
            elif _ready_for(node, networks):
                ready.append(subnet)
    default = [min(unbound, key=_age)] if unbound else []
    return default + sorted(ready, key=lambda subnet: subnet.metadata.name)


def _ready_for(node: Node, cluster_networks: Iterable[str]) -> bool:
    labels = node.metadata.labels or {}
    return any(labels.get(f"{NETWORKING}/{name}") == "true" for name in cluster_networks)


def _age(subnet: ClusterSubnet) -> tuple[str, str]:
    return subnet.metadata.creation_timestamp or "", subnet.metadata.name


def keys_of(subnet: ClusterSubnet) -> list[SubnetKey]:
    """The subnet as DNC knows it, one a family."""
    network = subnet.spec.network_id or ""
    families = sorted({family_of(cidr) for cidr in subnet.spec.address_space or ()})
    return [SubnetKey(network, subnet.metadata.name, family) for family in families]


def family_of(address: str) -> int:
    """Of an address, a range or a CIDR."""
    return 6 if ":" in address else 4


def matters(subnet: ClusterSubnet) -> tuple[object, ...]:
    """What of a subnet decides who draws from it; as long as it stays, no node need be looked at."""
    spec = subnet.spec
    gone = subnet.metadata.deletion_timestamp is not None
    return spec.node_selector, spec.address_space, spec.network_id, gone, declared(subnet)


def internal_ip(node: Node) -> str:
    for address in node.status.addresses or ():
        if address.type == "InternalIP":
            return address.address
    return ""


def maximum_of(node: Node, imported: int | None = None) -> int:
    """How many secondary IPs the node may have, else what was `imported`; what cannot be read is unsaid."""
    stated = number_of_ips((node.metadata.annotations or {}).get(names.MAX_IPS, "").strip())
    return imported or DEFAULT_MAXIMUM if stated is None else stated


def number_of_ips(text: str) -> int | None:
    """None: it is not one, or a longer one than anybody can mean."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None

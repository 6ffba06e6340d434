"""NodeNetwork: one ClusterNetwork on one node. The engine creates it, the node's agent builds it."""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from subnetes.api.declaration import AGE, READY, Column, Rule, immutable
from subnetes.api.limits import ClusterNetworkName, DeviceName, IPAddress, ObjectName, keyed_by
from subnetes.api.meta import Conditions, Object
from subnetes.api.model import Model
from subnetes.api.networkclass import NETWORKING
from subnetes.api.options import Options
from subnetes.api.resource import Resource


class NodeNetworkSpec(Model, kw_only=True):
    """What to build on the node."""

    rules: ClassVar[tuple[Rule, ...]] = (immutable("nodeName"), immutable("clusterNetworkName"))

    description: str = ""
    """What the fabric is for."""
    node_name: ObjectName
    """The node."""
    cluster_network_name: ClusterNetworkName
    """The ClusterNetwork."""
    options: Options = msgspec.field(default_factory=Options)
    """How the fabric is built on this node: first as in DefaultOptions, then yours to edit."""


class Device(Model, kw_only=True):
    """A network device that was made."""

    name: DeviceName
    """The device's name on the node."""
    type: Annotated[str, Meta(min_length=1, max_length=63)]
    """The kernel's name for what it is, such as bridge, vlan, vxlan or bond."""


class NodeNetworkStatus(Model):
    """What is built on the node. The node's agent is the only writer."""

    conditions: Conditions | None = None
    """What is to be known of the node; Ready is True while all of the fabric works there."""
    devices: Annotated[list[Device], Meta(max_length=64), keyed_by("name")] | None = None
    """The devices made."""
    vtep_address: IPAddress | None = None
    """For vxlan, the node's tunnel end point, which the other nodes send to."""


class NodeNetwork(Object, kw_only=True):
    """One ClusterNetwork on one node."""

    resource: ClassVar = Resource(NETWORKING, "v1beta1", "NodeNetwork", "nodenetworks", namespaced=False)
    columns: ClassVar = (
        Column("Node", ".spec.nodeName"),
        Column("Cluster Network", ".spec.clusterNetworkName"),
        READY,
        Column("VTEP", ".status.vtepAddress", wide=True),
        AGE,
    )
    selectable: ClassVar = (".spec.nodeName", ".spec.clusterNetworkName")

    spec: NodeNetworkSpec
    """What to build on the node."""
    status: NodeNetworkStatus | None = None
    """What is built on the node."""

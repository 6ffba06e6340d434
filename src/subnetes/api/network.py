"""Network: a VLAN or VXLAN segment of a ClusterNetwork that pods of one namespace attach to.

Its NetworkAttachmentDefinition has the same name. Which of the two confs fits is the class's to say, so a
Network keeps the kind of conf that it was made with; the id in it may change.
"""

from typing import Annotated, ClassVar

import msgspec

from subnetes.api.declaration import AGE, READY, Column, Rule, immutable
from subnetes.api.limits import NULLABLE, ClusterNetworkName, ObjectName
from subnetes.api.meta import Conditions, Object
from subnetes.api.model import Model
from subnetes.api.networkclass import NETWORKING
from subnetes.api.options import VLANID, VNI
from subnetes.api.resource import Resource


class VLANConf(Model, kw_only=True):
    """A segment of a VLAN fabric."""

    vid: VLANID
    """The VLAN id."""


class VxLanConf(Model, kw_only=True):
    """A segment of a VXLAN fabric."""

    vni: VNI = msgspec.field(name="VNI")
    """The VXLAN network identifier."""


def _given(value: str, field: str) -> str:
    # Go clients send null for the conf that they do not use.
    return f"(has({value}.{field}) && {value}.{field} != null)"


class NetworkConf(Model):
    """Which segment of the fabric. Exactly one of them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"{_given('self', 'vlanConf')} != {_given('self', 'vxLanConf')}",
            "exactly one of vlanConf and vxLanConf must be given",
        ),
        Rule(
            f"{_given('self', 'vlanConf')} == {_given('oldSelf', 'vlanConf')}",
            "a network cannot change between VLAN and VXLAN",
        ),
    )

    vlan_conf: Annotated[VLANConf | None, NULLABLE] = None
    """The segment, if the fabric is VLAN."""
    vx_lan_conf: Annotated[VxLanConf | None, NULLABLE] = None
    """The segment, if the fabric is VXLAN."""


class NetworkSpec(Model, kw_only=True):
    """The network as declared."""

    rules: ClassVar[tuple[Rule, ...]] = (immutable("clusterNetworkName"),)

    cluster_network_name: ClusterNetworkName
    """The ClusterNetwork that this network is a segment of."""
    conf: NetworkConf
    """Which segment of the fabric."""
    subnet_name: ObjectName | None = None
    """The ClusterSubnet that pods on this network get their IPs from; absent, they get none."""


class NetworkStatus(Model):
    """The network as it is."""

    conditions: Conditions | None = None
    """What is to be known of the network; Ready is True while pods can attach to it on at least one node."""


class Network(Object, kw_only=True):
    """A network that pods of its namespace attach to, by the NetworkAttachmentDefinition of the same name."""

    resource: ClassVar = Resource(NETWORKING, "v1beta1", "Network", "networks")
    columns: ClassVar = (
        Column("Cluster Network", ".spec.clusterNetworkName"),
        Column("VLAN", ".spec.conf.vlanConf.vid", "integer"),
        Column("VNI", ".spec.conf.vxLanConf.VNI", "integer"),
        Column("Subnet", ".spec.subnetName"),
        READY,
        AGE,
    )
    selectable: ClassVar = (".spec.clusterNetworkName", ".spec.subnetName")

    spec: NetworkSpec
    """The network as declared."""
    status: NetworkStatus | None = None
    """The network as it is."""

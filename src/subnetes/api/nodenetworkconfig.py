"""NodeNetworkConfig v1beta1: the hub and storage version of what a node asks for and what it was granted.

CNS writes the spec, DNC-RC the status; see `nodenetworkconfig_v1alpha` for what old clients see of the same
object. The schema asks for little: clusters that another control plane set up must be readable as they are.
"""

from typing import Annotated, ClassVar

import msgspec

from subnetes.api.declaration import Column
from subnetes.api.limits import ATOMIC_LIST, ATOMIC_MAP, Count, one_of
from subnetes.api.meta import Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource

AssignmentMode = Annotated[str, one_of("dynamic", "static")]
ReconcileStatus = Annotated[str, one_of("Updating", "Updated", "Error")]


class SecondaryIP(Model):
    """One address that a network container holds for pods."""

    address: str = ""
    """The IP address."""
    id: str = ""
    """The grant's identity, new at every grant and never reused; spec.releasedIPs names it."""


class NetworkContainer(Model):
    """The addresses of one node in one subnet: a primary IP and 0 or more secondary IPs."""

    assignment_mode: AssignmentMode = ""
    """Whether addresses come one by one (dynamic) or as a block (static)."""
    default_gateway: str = ""
    """The IPv4 gateway of the subnet."""
    default_gateway_v6: str = ""
    """The IPv6 gateway of the subnet."""
    id: str = ""
    """The network container's identity, a UUID; the key of spec.secondaryIPs."""
    mac_address: str = ""
    """The address of the interface that carries this network container, where it has one of its own."""
    node_ip: str = ""
    """The node's own address. An agent skips network containers that are not for its address."""
    primary_ip: str = ""
    """The IPv4 address, or CIDR, that the node itself has in the subnet."""
    primary_ip_v6: str = ""
    """The IPv6 address, or CIDR, that the node itself has in the subnet."""
    resource_group_id: str = ""
    """The cloud resource group of the subnet."""
    secondary_ip_count: Count | None = None
    """How many secondary IPs were granted."""
    secondary_ips: Annotated[list[SecondaryIP], ATOMIC_LIST] | None = msgspec.field(
        name="secondaryIPs", default=None
    )
    """The secondary IPs that were granted, for pods."""
    status: str = ""
    """How the last request ended: NCUpdateSuccess, NCUpdateSubnetFullError, NCUpdateInternalServerError,
    NCUpdateUnauthorizedError or NCUpdateFailed."""
    subscription_id: str = msgspec.field(name="subcriptionID", default="")
    """The cloud subscription of the subnet. The name on the wire has always been spelled so."""
    subnet_address_space: str = ""
    """The subnet's IPv4 CIDR."""
    subnet_address_space_v6: str = ""
    """The subnet's IPv6 CIDR."""
    subnet_name: str = ""
    """The subnet, which is also its ClusterSubnet's name."""
    type: str = ""
    """What carries the addresses: vnet, vnetblock or overlay."""
    version: int | None = None
    """One higher at each change of the addresses; an agent ignores a lower one than it has seen."""
    vnet_id: str = ""
    """The virtual network that the subnet is part of."""


class NodeNetworkConfigSpec(Model):
    """What the node asks for. Its agent, CNS, is the only writer."""

    availability_zone: int | None = None
    """The number of the zone that the node is in."""
    released_ips: Annotated[list[str], ATOMIC_LIST] | None = None
    """The ids of secondary IPs that the node has let go of. Exactly these are taken back, and no others."""
    secondary_ips: Annotated[dict[str, Count], ATOMIC_MAP] | None = None
    """How many secondary IPs each network container should have: id to target, never a difference."""


class NodeNetworkConfigStatus(Model):
    """What the node was granted. DNC-RC is the only writer."""

    network_containers: Annotated[list[NetworkContainer], ATOMIC_LIST] | None = None
    """The node's network containers, one for each subnet it draws from."""
    status: ReconcileStatus = ""
    """Whether the request is being met (Updating), has been met (Updated) or cannot be met (Error)."""


def container_columns(allocated: Column, requested: Column) -> tuple[Column, ...]:
    """The columns as users of v1alpha know them; each version has its own place for the two counts."""
    first = ".status.networkContainers[*]"
    return (
        allocated,
        Column("NC Mode", f"{first}.assignmentMode"),
        Column("NC Version", f"{first}.version", "integer"),
        requested,
        Column("Availability Zone", ".spec.availabilityZone", wide=True),
        Column("Subnet", f"{first}.subnetName", wide=True),
        Column("Subnet CIDR", f"{first}.subnetAddressSpace", wide=True),
        Column("Subnet CIDR v6", f"{first}.subnetAddressSpaceV6", wide=True),
        Column("NC ID", f"{first}.id", wide=True),
        Column("NC Type", f"{first}.type", wide=True),
    )


class NodeNetworkConfig(Object):
    """The IP addresses of one node: how many its agent asks for, and which it was granted."""

    resource: ClassVar = Resource("acn.azure.com", "v1beta1", "NodeNetworkConfig", "nodenetworkconfigs")
    short_names: ClassVar = ("nnc",)
    columns: ClassVar = container_columns(
        Column("Allocated IPs", ".status.networkContainers[*].secondaryIPCount", "integer"),
        Column("Requested IPs", ".spec.secondaryIPs", wide=True),
    )

    spec: NodeNetworkConfigSpec | None = None
    """What the node asks for."""
    status: NodeNetworkConfigStatus | None = None
    """What the node was granted."""

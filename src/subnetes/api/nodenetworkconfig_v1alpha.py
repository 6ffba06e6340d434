"""NodeNetworkConfig v1alpha: the same object as clients older than v1beta1 know it.

Only the conversion and its tests use it; everything else of ours speaks the hub, `nodenetworkconfig`. Its
fields are those that live clusters carry, which are more than the design of v1beta1 speaks of.
"""

from typing import Annotated, ClassVar

import msgspec

from subnetes.api.declaration import Column
from subnetes.api.limits import ATOMIC_LIST, schema
from subnetes.api.meta import Object
from subnetes.api.model import Model
from subnetes.api.nodenetworkconfig import AssignmentMode, ReconcileStatus, container_columns
from subnetes.api.resource import Resource


class IPAssignment(Model):
    """One address that a network container holds for pods."""

    name: str = ""
    """The grant's identity, a UUID; spec.ipsNotInUse names it."""
    ip: str = ""
    """The IP address."""


class NetworkContainer(Model):
    """The addresses of one node in one subnet."""

    assignment_mode: AssignmentMode = ""
    """Whether addresses come one by one (dynamic) or as a block (static)."""
    default_gateway: str = ""
    """The IPv4 gateway of the subnet."""
    default_gateway_v6: str = ""
    """The IPv6 gateway of the subnet."""
    id: str = ""
    """The network container's identity, a UUID."""
    ip_assignments: Annotated[list[IPAssignment], ATOMIC_LIST] | None = None
    """The secondary IPs that were granted, for pods."""
    mac_address: str = ""
    """The address of the interface that carries this network container, where it has one of its own."""
    node_ip: str = ""
    """The node's own address."""
    primary_ip: str = ""
    """The IPv4 address, or CIDR, that the node itself has in the subnet."""
    primary_ip_v6: str = ""
    """The IPv6 address, or CIDR, that the node itself has in the subnet."""
    resource_group_id: str = ""
    """The cloud resource group of the subnet."""
    status: str = ""
    """How the last request ended: NCUpdateSuccess, or which error it met."""
    subscription_id: str = msgspec.field(name="subcriptionID", default="")
    """The cloud subscription of the subnet. The name on the wire has always been spelled so."""
    subnet_address_space: str = ""
    """The subnet's IPv4 CIDR."""
    subnet_address_space_v6: str = ""
    """The subnet's IPv6 CIDR."""
    subnet_id: str = ""
    """The subnet's name once more."""
    subnet_name: str = ""
    """The subnet."""
    type: str = ""
    """What carries the addresses: vnet, vnetblock or overlay."""
    version: int | None = None
    """One higher at each change of the addresses."""
    vnet_id: str = ""
    """The virtual network that the subnet is part of."""


class Scaler(Model):
    """How the node's pool grows and shrinks."""

    batch_size: int | None = None
    """How many IPs are asked for, or let go, at a time."""
    max_ip_count: int | None = None
    """How many IPs the node may have."""
    release_threshold_percent: int | None = None
    """Above this share of a batch free, a batch is let go."""
    request_threshold_percent: int | None = None
    """Below this share of a batch free, a batch is asked for."""


class NodeNetworkConfigSpec(Model):
    """What the node asks for."""

    availability_zone: int | None = None
    """The number of the zone that the node is in."""
    ips_not_in_use: Annotated[list[str], ATOMIC_LIST] | None = None
    """The names of IP assignments that the node has let go of."""
    requested_ip_count: Annotated[int, schema(minimum=0)] | None = None
    """How many secondary IPs the node should have, over all its network containers."""


class NodeNetworkConfigStatus(Model):
    """What the node was granted."""

    assigned_ip_count: int | None = None
    """How many secondary IPs the node was granted."""
    network_containers: Annotated[list[NetworkContainer], ATOMIC_LIST] | None = None
    """The node's network containers."""
    scaler: Scaler | None = None
    """How the node's pool grows and shrinks."""
    status: ReconcileStatus = ""
    """Whether the request is being met (Updating), has been met (Updated) or cannot be met (Error)."""


class NodeNetworkConfig(Object):
    """The IP addresses of one node, as clients older than v1beta1 know it."""

    resource: ClassVar = Resource("acn.azure.com", "v1alpha", "NodeNetworkConfig", "nodenetworkconfigs")
    short_names: ClassVar = ("nnc",)
    columns: ClassVar = container_columns(
        Column("Allocated IPs", ".status.assignedIPCount", "integer"),
        Column("Requested IPs", ".spec.requestedIPCount", "integer", wide=True),
    )

    spec: NodeNetworkConfigSpec | None = None
    """What the node asks for."""
    status: NodeNetworkConfigStatus | None = None
    """What the node was granted."""

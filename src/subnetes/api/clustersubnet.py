"""ClusterSubnet: a subnet that many nodes draw their IPs from, and how its nodes' pools scale.

The user writes the spec, DNC-RC the status. What depends on state (a batch above the capacity, a gateway
outside the address space) is DNC-RC's to refuse, in a condition; what is wrong in itself is refused here.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from subnetes.api.declaration import AGE, Column, Rule
from subnetes.api.limits import (
    ATOMIC_LIST,
    CIDR,
    ONE_PER_FAMILY,
    AddressRange,
    Count,
    IPAddress,
    ruled,
)
from subnetes.api.meta import Conditions, Object
from subnetes.api.model import Model
from subnetes.api.resource import Resource
from subnetes.api.selector import LabelSelector

Batch = Annotated[int, Meta(ge=1)]
Buffer = Annotated[float, Meta(ge=0)]


class ScalerOverride(Model):
    """Values that replace the ones in use, each by itself."""

    batch: Batch | None = None
    """How many IPs a node asks for, or lets go, at a time."""
    buffer: Buffer | None = None
    """How many batches a node keeps free, as a fraction: with batch 16, 0.5 keeps 8 IPs ready."""


class Scaler(Model, kw_only=True):
    """The scaling values in use."""

    batch: Batch
    """How many IPs a node asks for, or lets go, at a time."""
    buffer: Buffer
    """How many batches a node keeps free, as a fraction: with batch 16, 0.5 keeps 8 IPs ready."""


class Thresholds(Model):
    """Which shares of the capacity begin and end exhaustion."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.lower < self.upper",
            "lower (0.8 unless given) must be below upper (0.9 unless given)",
            ".lower",
        ),
    )

    upper: Annotated[float, Meta(le=1)] = 0.9
    """Above this share of the capacity in reserve, the subnet is exhausted and idle IPs flow back."""
    lower: Annotated[float, Meta(gt=0)] = 0.8
    """Below this share, counted as if nobody had been squeezed, the subnet has recovered."""


class ClusterSubnetSpec(Model):
    """The subnet as declared."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.networkID) == has(oldSelf.networkID)"
            " && (!has(self.networkID) || self.networkID == oldSelf.networkID)",
            "networkID cannot be changed, added or removed",
            ".networkID",
        ),
        Rule(
            "!has(self.gateway) || self.gateway.all(g, has(self.addressSpace)"
            " && self.addressSpace.exists(c, c.contains(':') == g.contains(':')))",
            "a gateway needs an addressSpace of its own family",
            ".gateway",
        ),
    )

    address_space: (
        Annotated[list[CIDR], Meta(min_length=1, max_length=2), ATOMIC_LIST, ruled(ONE_PER_FAMILY)] | None
    ) = None
    """The subnet's addresses: an IPv4 CIDR, an IPv6 CIDR, or one of each."""
    exclude: Annotated[list[AddressRange], Meta(max_length=256), ATOMIC_LIST] | None = None
    """Addresses that are never handed out: single ones, ranges (first-last) and CIDRs."""
    gateway: Annotated[list[IPAddress], Meta(max_length=2), ATOMIC_LIST, ruled(ONE_PER_FAMILY)] | None = None
    """The address of the gateway, one for each family of the address space; never handed out."""
    network_id: Annotated[str, Meta(min_length=1, max_length=253)] | None = None
    """The network that the subnet is part of, for an allocator that serves several: two networks may use the
    same addresses."""
    node_selector: LabelSelector | None = None
    """The nodes that draw from this subnet; absent, all do."""
    scaler: ScalerOverride | None = None
    """Overrides the scaling values of this subnet while it runs."""
    thresholds: Thresholds = msgspec.field(default_factory=Thresholds)
    """Which shares of the capacity begin and end exhaustion."""


class ClusterSubnetStatus(Model):
    """The subnet as it is. DNC-RC is the only writer."""

    capacity: Count | None = None
    """How many addresses can be handed out; at most 2^53 - 1 is said."""
    conditions: Conditions | None = None
    """What is to be known of the subnet, such as an override that was refused."""
    exhausted: bool | None = None
    """Whether addresses are so scarce that nodes keep no spare ones."""
    reserved: Count | None = None
    """How many addresses nodes hold, in use or not; up to 30 seconds old, or more above 1,500 nodes."""
    scaler: Scaler | None = None
    """The scaling values in use."""
    timestamp: Count | None = None
    """When exhausted was last decided, in seconds since 1970."""


class ClusterSubnet(Object):
    """A subnet that many nodes draw their IPs from."""

    resource: ClassVar = Resource("acn.azure.com", "v1alpha1", "ClusterSubnet", "clustersubnets")
    columns: ClassVar = (
        Column("Address Space", ".spec.addressSpace"),
        Column("Capacity", ".status.capacity", "integer"),
        Column("Reserved", ".status.reserved", "integer"),
        Column("Exhausted", ".status.exhausted", "boolean"),
        Column("Batch", ".status.scaler.batch", "integer", wide=True),
        Column("Buffer", ".status.scaler.buffer", "number", wide=True),
        AGE,
    )

    spec: ClusterSubnetSpec = msgspec.field(default_factory=ClusterSubnetSpec)
    """The subnet as declared."""
    status: ClusterSubnetStatus | None = None
    """The subnet as it is."""

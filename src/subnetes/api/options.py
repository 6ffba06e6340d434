"""How a fabric is built on a node, by type: a ClusterNetwork has the default, a NodeNetwork what holds."""

from typing import Annotated, ClassVar

from msgspec import Meta

from subnetes.api.declaration import Rule
from subnetes.api.limits import CIDR, MTU, SET, DeviceName, one_of
from subnetes.api.model import Model

VLANID = Annotated[int, Meta(ge=1, le=4094)]
VNI = Annotated[int, Meta(ge=1, le=16777215)]
Port = Annotated[int, Meta(ge=1, le=65535)]

_IN_ORDER = Rule("self.min <= self.max", "min must not be above max", ".min")
_BOND_MODES = (
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
)


class VLANRange(Model, kw_only=True):
    """VLAN ids from min to max, both included."""

    rules: ClassVar[tuple[Rule, ...]] = (_IN_ORDER,)

    min: VLANID
    """The first VLAN id."""
    max: VLANID
    """The last VLAN id."""


class VNIRange(Model, kw_only=True):
    """VXLAN network identifiers from min to max, both included."""

    rules: ClassVar[tuple[Rule, ...]] = (_IN_ORDER,)

    min: VNI
    """The first VNI."""
    max: VNI
    """The last VNI."""


class Bond(Model):
    """How several NICs act as one."""

    mode: Annotated[str, one_of(*_BOND_MODES)] = "active-backup"
    """The kernel's bonding mode."""
    miimon: Annotated[int, Meta(ge=1)] = 100
    """How often, in milliseconds, each NIC's link is looked at."""


class VLANOptions(Model):
    """How a VLAN fabric is built on a node."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("!(has(self.nic) && has(self.nics))", "nic and nics exclude each other", ".nic"),
        Rule("!has(self.bond) || has(self.nics)", "a bond needs nics", ".bond"),
    )

    nic: DeviceName | None = None
    """The NIC that carries the VLANs."""
    nics: Annotated[list[DeviceName], Meta(min_length=1, max_length=16), SET] | None = None
    """The NICs that carry the VLANs together, bonded."""
    bond: Bond | None = None
    """How the NICs act as one."""
    mtu: MTU | None = None
    """The MTU of the devices made; absent, that of the NIC."""
    vlan_range: VLANRange | None = None
    """The VLAN ids that Networks here may use; absent, all."""


class VxLanOptions(Model):
    """How a VXLAN fabric is built on a node."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule("!(has(self.nic) && has(self.underlayCIDR))", "nic and underlayCIDR exclude each other", ".nic"),
    )

    nic: DeviceName | None = None
    """The NIC whose address is the node's tunnel end point."""
    underlay_cidr: CIDR | None = None
    """The node's address within this CIDR is its tunnel end point."""
    dst_port: Port = 4789
    """The UDP port of the tunnel."""
    mtu: MTU | None = None
    """The MTU of the devices made; absent, what the underlay leaves room for."""
    vni_range: VNIRange | None = None
    """The VNIs that Networks here may use; absent, all."""


class Options(Model):
    """How a fabric is built on a node; the engine of the network's class says which of them counts."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(has(self.vlanOptions) && has(self.vxLanOptions))",
            "vlanOptions and vxLanOptions exclude each other",
        ),
    )

    vlan_options: VLANOptions | None = None
    """For the engine vlan."""
    vx_lan_options: VxLanOptions | None = None
    """For the engine vxlan."""

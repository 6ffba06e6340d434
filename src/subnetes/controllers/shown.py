"""What NNCs show, as DNC takes it into its record: pure. Adoption asks here.

Of several CIDRs of one subnet (it has grown, and not every status says so yet) the widest counts: an address
outside of it would be nobody's, and another's soon. What has no id gets one, or its address would be free.
"""

import uuid
from collections.abc import Iterable
from ipaddress import ip_network

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.nodenetworkconfig import NetworkContainer
from subnetes.controllers.declarations import accepted, declarations_of
from subnetes.controllers.placement import family_of
from subnetes.controllers.status import plain
from subnetes.dnc.types import NC, AdoptedNC, SecondaryIP, SubnetKey

Place = tuple[str, int]
"""A subnet's name and a family."""

_UNNAMED = uuid.UUID("6a2f5d0e-5d3c-4e0f-9a3b-2f8f3d1c7b60")


class Shown:
    def __init__(self) -> None:
        self._networks: dict[str, str] = {}  # of each ClusterSubnet
        self._spaces: dict[Place, str] = {}  # the widest CIDR that was accepted or is shown
        self._stated: dict[Place, str] = {}  # the CIDR of the spec

    def know(self, subnets: Iterable[ClusterSubnet]) -> None:
        for subnet in subnets:
            self._networks[subnet.metadata.name] = subnet.spec.network_id or ""
            self._stated |= _cidrs(subnet)
            before = accepted(subnet)
            self._spaces |= _cidrs(before) if before else {}

    def widen(self, containers: Iterable[NetworkContainer]) -> None:
        for each in containers:
            space = each.subnet_address_space or each.subnet_address_space_v6
            place = each.subnet_name, family_of(space)
            if _width(space) > _width(self._spaces.get(place, "")):
                self._spaces[place] = space

    def adopted(self, node: str, found: NetworkContainer) -> AdoptedNC:
        primary = plain(found.primary_ip or found.primary_ip_v6)
        family = family_of(primary or found.subnet_address_space or found.subnet_address_space_v6)
        place = found.subnet_name, family
        return AdoptedNC(
            id=found.id or _named(node, primary),
            node=node,
            subnet=SubnetKey(self._networks.get(found.subnet_name, ""), found.subnet_name, family),
            cidr=self._spaces.get(place) or self._stated.get(place, ""),
            gateway=found.default_gateway or found.default_gateway_v6,
            primary=primary,
            version=found.version or 0,
            secondary=tuple(SecondaryIP(ip.id, plain(ip.address)) for ip in found.secondary_ips or ()),
        )


def recorded(nc: NC) -> AdoptedNC:
    """What DNC has on record, as if it were shown."""
    return AdoptedNC(nc.id, nc.node, nc.subnet, nc.cidr, nc.gateway, nc.primary, nc.version, nc.secondary)


def _cidrs(subnet: ClusterSubnet) -> dict[Place, str]:
    return {(each.key.name, each.key.family): each.cidr for each in declarations_of(subnet)}


def _named(node: str, primary: str) -> str:
    """An id for an NC that was shown without one: the same whoever adopts it."""
    return str(uuid.uuid5(_UNNAMED, f"{node} {primary}"))


def _width(cidr: str) -> int:
    """How many addresses it has; 0: it is no CIDR."""
    try:
        return ip_network(cidr).num_addresses
    except ValueError:
        return 0

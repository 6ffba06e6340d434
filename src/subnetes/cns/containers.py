"""A network container as the agent needs it: what a pod is told of its subnet, and what pools are planned by.

Pure. Read from the NNC's status at each observation; journaled, so that an agent that restarts while the API
server is away can still answer.
"""

from collections.abc import Iterable, Sequence

import msgspec

from subnetes.api.names import DRAINING
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig

SUBNET_FULL = "NCUpdateSubnetFullError"


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NC. `version` is the highest that was seen of this NNC (its uid); `draining`: no pod gets an IP of
    it any more; `missing`: the NNC is gone or lists none, so that its IPs may be another node's by now."""

    id: str
    subnet: str
    cidr: str
    prefix_length: int
    gateway: str = ""
    primary: str = ""
    family: int = 4
    version: int = 0
    draining: bool = False
    full: bool = False
    network: str = ""
    nnc: str = ""
    missing: bool = False


def containers_of(nnc: NodeNetworkConfig) -> tuple[Container, ...]:
    """The NCs of the status, in its order: the default network's come first."""
    found = nnc.status.network_containers if nnc.status else None
    draining = draining_ids(nnc)
    by_name = {nc.id: nc for nc in found or () if nc.id}
    uid = nnc.metadata.uid or ""
    return tuple(_container(nc, nc.id in draining, uid) for nc in by_name.values())


def draining_ids(nnc: NodeNetworkConfig) -> frozenset[str]:
    listed = (nnc.metadata.annotations or {}).get(DRAINING, "")
    return frozenset(text.strip() for text in listed.split(",") if text.strip())


def serving(containers: Sequence[Container], subnet: str | None = None) -> tuple[Container, ...]:
    """The NCs that a new attachment gets one IP of each: one for each family of its subnet.

    Without a subnet, the default network's, which is the first NC's that does not drain.
    """
    usable = [each for each in containers if not (each.draining or each.missing)]
    if subnet is None and usable:
        subnet = usable[0].subnet
    by_family: dict[int, Container] = {}
    for each in usable:
        if each.subnet == subnet:
            by_family.setdefault(each.family, each)
    return tuple(by_family.values())


def missing(containers: Iterable[Container]) -> tuple[Container, ...]:
    """The same without an NNC that lists them."""
    return tuple(msgspec.structs.replace(each, missing=True) for each in containers)


def by_id(containers: Iterable[Container]) -> dict[str, Container]:
    return {each.id: each for each in containers}


def _container(nc: NetworkContainer, draining: bool, nnc: str) -> Container:
    """An NC carries the plain fields whichever its family; those with V6 are other control planes'."""
    v6_only = not nc.subnet_address_space and bool(nc.subnet_address_space_v6)
    cidr = nc.subnet_address_space_v6 if v6_only else nc.subnet_address_space
    primary = (nc.primary_ip_v6 if v6_only else "") or nc.primary_ip
    gateway = (nc.default_gateway_v6 if v6_only else "") or nc.default_gateway
    family = 6 if ":" in (cidr or primary) else 4
    return Container(
        id=nc.id,
        subnet=nc.subnet_name,
        cidr=cidr,
        prefix_length=_prefix_length(cidr or primary, family),
        gateway=gateway,
        primary=primary.partition("/")[0],
        family=family,
        version=nc.version or 0,
        draining=draining,
        full=nc.status == SUBNET_FULL,
        network=nc.vnet_id,
        nnc=nnc,
    )


def _prefix_length(cidr: str, family: int) -> int:
    """Without a CIDR that says it, an address is by itself: the pod then reaches all through its gateway."""
    _, _, length = cidr.partition("/")
    return int(length) if length.isdecimal() else (128 if family == 6 else 32)

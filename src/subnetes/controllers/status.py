"""An NNC's status from what DNC has on record, and conditions in general: pure.

What DNC does not know of a network container (cloud ids, a MAC address, fields of a newer version) is kept as
whoever wrote the status before us wrote it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from subnetes.api.meta import Condition
from subnetes.api.nodenetworkconfig import (
    NetworkContainer,
    NodeNetworkConfig,
    NodeNetworkConfigStatus,
    SecondaryIP,
)
from subnetes.dnc.types import NC

SUCCESS = "NCUpdateSuccess"
FULL = "NCUpdateSubnetFullError"
UPDATED = "Updated"
ERROR = "Error"


def container(nc: NC, node_ip: str, target: int, before: NetworkContainer | None) -> NetworkContainer:
    """The NC as the node's agent reads it; `target` is what was asked for, at most the node's maximum."""
    known = before or NetworkContainer(
        type="vnet", assignment_mode="dynamic", vnet_id=nc.subnet.network, primary_ip=nc.primary
    )
    return msgspec.structs.replace(
        known,
        id=nc.id,
        node_ip=node_ip or known.node_ip,
        primary_ip=known.primary_ip if plain(known.primary_ip) == nc.primary else nc.primary,
        default_gateway=nc.gateway,
        subnet_address_space=nc.cidr,
        subnet_name=nc.subnet.name,
        secondary_ip_count=len(nc.secondary),
        secondary_ips=[SecondaryIP(address=ip.address, id=ip.id) for ip in nc.secondary],
        version=nc.version,
        status=FULL if len(nc.secondary) < target else SUCCESS,
    )


def node_status(
    nnc: NodeNetworkConfig, containers: list[NetworkContainer], *, short: bool
) -> NodeNetworkConfigStatus:
    """`short`: something that was asked for could not be had."""
    before = nnc.status or NodeNetworkConfigStatus()
    return msgspec.structs.replace(before, network_containers=containers, status=ERROR if short else UPDATED)


def containers_of(nnc: NodeNetworkConfig) -> list[NetworkContainer]:
    return (nnc.status.network_containers if nnc.status else None) or []


def newly_full(before: Iterable[NetworkContainer], after: Iterable[NetworkContainer]) -> list[str]:
    """The subnets that could not give all that was asked for, and last time could."""
    known = {each.id for each in before if each.status == FULL}
    return sorted({each.subnet_name for each in after if each.status == FULL and each.id not in known})


def plain(address: str) -> str:
    """Without the prefix length that some control planes add to a primary IP."""
    return address.partition("/")[0]


def with_conditions(
    before: Iterable[Condition], news: Iterable[Condition], gone: Iterable[str] = ()
) -> list[Condition]:
    """The conditions, one a type; the time of a transition stands until the status changes again."""
    known: Mapping[str, Condition] = {each.type: each for each in before}
    fresh = {each.type: _since(known.get(each.type), each) for each in news}
    dropped = set(gone) - set(fresh)
    return [each for kind, each in sorted((dict(known) | fresh).items()) if kind not in dropped]


def _since(old: Condition | None, new: Condition) -> Condition:
    if old is None or old.status != new.status:
        return new
    return msgspec.structs.replace(new, last_transition_time=old.last_transition_time)


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    """The other way round; a time that cannot be read is the epoch: long ago."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0

"""What a node asks for, read from its NNC's spec: pure. The NNC controller hands the answer to DNC.

The spec is the agent's word and may be anything: ids of NCs that are not its own, a sum above the node's
maximum, releases of other nodes' IPs. What can be met is an `Ask`; the rest is named, for events.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.carrying import carried_count
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.status import containers_of
from subnetes.dnc.types import NC

_HUB = NodeNetworkConfig.resource.api_version
_OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig.resource.api_version


@dataclass(frozen=True, slots=True)
class Ask:
    """What one NC should have: a target, and what it lets go."""

    target: int
    released: tuple[str, ...]

    def is_news_to(self, nc: NC) -> bool:
        """Whether DNC has to be told; who still waits tells it again, to stay in line."""
        return bool(self.released) or self.target != nc.target or self.target > len(nc.secondary)


@dataclass(frozen=True, slots=True)
class Request:
    asks: dict[str, Ask]
    unknown: tuple[str, ...]  # ids in spec.secondaryIPs that are no NC of this node
    cut: int  # how many IPs above the node's maximum were asked for


def read(
    nnc: NodeNetworkConfig,
    ncs: Sequence[NC],
    maximum: int,
    draining: Collection[str] = (),
    in_use: Collection[str] = (),
) -> Request:
    """The request; an NC that drains gets nothing more, one that is not mentioned keeps what it has.

    Of what is let go, `in_use` stays. What an NC keeps counts towards the maximum, whatever its target.
    """
    released = {nc.id: _released(nnc, nc, ncs, in_use) for nc in ncs}
    kept = {nc.id: len({ip.id for ip in nc.secondary}.difference(released[nc.id])) for nc in ncs}
    shown = {each.id: len(each.secondary_ips or ()) for each in containers_of(nnc)}
    wanted = stated(nnc, kept | {nc: count for nc, count in shown.items() if nc not in kept}, draining)
    left, room = maximum, max(0, maximum - sum(kept.values()))
    asks, cut = dict[str, Ask](), 0
    for nc in ncs:
        asked = 0 if nc.id in draining else wanted.get(nc.id, 0)
        target = min(asked, left, kept[nc.id] + room)
        room -= max(0, target - kept[nc.id])
        cut, left = cut + asked - target, left - target
        asks[nc.id] = Ask(target, released[nc.id])
    return Request(asks, tuple(sorted(wanted.keys() - kept.keys())), cut)


def stated(nnc: NodeNetworkConfig, held: Mapping[str, int], draining: Collection[str]) -> Mapping[str, int]:
    """What the spec asks for. `held` is what each NC of the node has, in order.

    A writer of v1alpha knows no NCs. What it asked for before there was any is carried by conversion, until
    somebody writes secondaryIPs; what it asked for may stand under the id of an NC that is gone, for as long
    as it asks for the same. Both are for the first NC that does not drain, less what the others have beyond
    their own requests: the node has that already.
    """
    wanted = (nnc.spec.secondary_ips if nnc.spec else None) or {}
    first = next((nc for nc in held if nc not in draining), None)
    loose = _loose(nnc, held)
    if not loose or first is None:
        return wanted
    own = {nc: count for nc, count in wanted.items() if nc in held}
    elsewhere = sum(max(0, count - own.get(nc, 0)) for nc, count in held.items() if nc != first)
    return own | {first: own.get(first, 0) + max(0, loose - elsewhere)}


def _loose(nnc: NodeNetworkConfig, ncs: Collection[str]) -> int:
    """What a writer of v1alpha asked for that no NC of the node is the one for."""
    wanted = nnc.spec.secondary_ips if nnc.spec else None
    if wanted is None:
        return carried_count(nnc.metadata.annotations) or 0
    gone = sum(count for nc, count in wanted.items() if nc not in ncs)
    return gone if gone and asked_in_v1alpha(nnc) else 0


def asked_in_v1alpha(nnc: NodeNetworkConfig) -> bool:
    """Whether the request stands as a writer of v1alpha wrote it; the API server keeps who wrote what."""
    owned = [
        (entry.get("apiVersion"), (entry.get("fieldsV1") or {}).get("f:spec") or {})
        for entry in nnc.metadata.managed_fields or ()
        if not entry.get("subresource")
    ]
    return _has(owned, _OLD, "f:requestedIPCount") and not _has(owned, _HUB, "f:secondaryIPs")


def _has(owned: list[tuple[Any, dict[str, Any]]], version: str, field: str) -> bool:
    return any(each == version and field in fields for each, fields in owned)


def _released(nnc: NodeNetworkConfig, nc: NC, ncs: Sequence[NC], in_use: Collection[str]) -> tuple[str, ...]:
    """All that the node lets go, less what is another NC's of the same node: that one is told itself."""
    others = {ip.id for other in ncs if other.id != nc.id for ip in (*other.secondary, *other.leaving)}
    listed = (nnc.spec.released_ips if nnc.spec else None) or ()
    return tuple(sorted(set(listed).difference(others, in_use)))

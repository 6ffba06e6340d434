"""What a node asks for, read from its NNC's spec: pure. The NNC controller hands the answer to DNC.

The spec is the agent's word and may be anything: ids of NCs that are not its own, a sum above the node's
maximum, releases of other nodes' IPs. What can be met is an `Ask`; the rest is named, for events.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from subnetes.api.carrying import carried_count
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.dnc.types import NC


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


def read(nnc: NodeNetworkConfig, ncs: Sequence[NC], maximum: int, draining: Collection[str] = ()) -> Request:
    """The request; an NC that drains gets nothing more, one that is not mentioned keeps what it has."""
    wanted = stated(nnc, (nc.id for nc in ncs if nc.id not in draining))
    known = {nc.id for nc in ncs}
    left, asks, cut = maximum, dict[str, Ask](), 0
    for nc in ncs:
        asked = 0 if nc.id in draining else wanted.get(nc.id, 0)
        target = min(asked, left)
        cut, left = cut + asked - target, left - target
        asks[nc.id] = Ask(target, _released(nnc, nc, ncs))
    return Request(asks, tuple(sorted(set(wanted) - known)), cut)


def stated(nnc: NodeNetworkConfig, ncs: Iterable[str]) -> Mapping[str, int]:
    """What the spec asks for. `ncs` are the ids of the node's NCs, in order.

    What a writer of v1alpha asked for before there was any NC has no id to be kept by: conversion carries it,
    and it is a request for the first NC, until somebody writes secondaryIPs.
    """
    wanted = nnc.spec.secondary_ips if nnc.spec else None
    if wanted is not None:
        return wanted
    count, first = carried_count(nnc.metadata.annotations), next(iter(ncs), None)
    return {first: count} if count is not None and first is not None else {}


def _released(nnc: NodeNetworkConfig, nc: NC, ncs: Sequence[NC]) -> tuple[str, ...]:
    """All that the node lets go, less what is another NC's of the same node: that one is told itself."""
    others = {ip.id for other in ncs if other.id != nc.id for ip in (*other.secondary, *other.leaving)}
    listed = (nnc.spec.released_ips if nnc.spec else None) or ()
    return tuple(sorted(set(listed) - others))

"""How many IPs a subnet's nodes would hold if nobody were squeezed: kept up to date, change by change.

An NNC that changes costs as much as it has NCs. The sum costs as much as there are different requests in the
subnet (a few hundred at most), whatever the number of nodes, and is right for any scaler. What a node asks
for above its maximum, it is never granted, and does not count. The NNC informer feeds it, the ClusterSubnet
controller asks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import requests, scalers
from subnetes.controllers.placement import family_of
from subnetes.controllers.status import containers_of
from subnetes.ipam.exhaustion import contribution, old_contribution
from subnetes.ipam.scaling import Scaler

Place = tuple[str, int]
"""A subnet's name and a family."""

Request = tuple[int, bool]
"""How many IPs, and whether an agent that only knows v1alpha asked for them: it scales otherwise."""

_HUB = NodeNetworkConfig.resource.api_version
_OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig.resource.api_version


class Projection:
    def __init__(self) -> None:
        self._requests: defaultdict[Place, Counter[Request]] = defaultdict(Counter)

    def changed(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> set[str]:
        """Take in a change; the names of the subnets that it concerns."""
        before, after = Counter(_requests(old)), Counter(_requests(new))
        concerned = set[str]()
        for (place, requested), count in (before - after).items():
            self._requests[place][requested] -= count
            concerned.add(place[0])
        for (place, requested), count in (after - before).items():
            self._requests[place][requested] += count
            concerned.add(place[0])
        for place, requested in before - after:
            if self._requests[place][requested] <= 0:
                del self._requests[place][requested]
        return concerned

    def of(self, name: str, family: int, scaler: Scaler) -> int:
        requests = self._requests.get((name, family), Counter())
        return sum(
            count * (old_contribution if is_old else contribution)(scaler, requested)
            for (requested, is_old), count in requests.items()
        )


def _requests(nnc: NodeNetworkConfig | None) -> Iterable[tuple[Place, Request]]:
    if nnc is None:
        return
    wanted = requests.stated(nnc, (each.id for each in containers_of(nnc)))
    left, is_old = scalers.maximum_in(nnc.metadata.annotations), asked_in_v1alpha(nnc)
    for each in containers_of(nnc):
        family = family_of(each.primary_ip or each.subnet_address_space)
        requested = min(wanted.get(each.id, 0), left)
        left -= requested
        yield (each.subnet_name, family), (requested, is_old)


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

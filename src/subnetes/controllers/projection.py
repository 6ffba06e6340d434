"""How many IPs a subnet's nodes would hold if nobody were squeezed: kept up to date, change by change.

An NNC that changes costs as much as it has NCs. The sum costs as much as there are different requests in the
subnet (a few hundred at most), whatever the number of nodes, and is right for any scaler. What a node asks
for above its maximum, it is never granted, and does not count. The NNC informer feeds it, the ClusterSubnet
controller asks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import scalers
from subnetes.controllers.placement import family_of
from subnetes.controllers.status import containers_of
from subnetes.ipam.exhaustion import contribution
from subnetes.ipam.scaling import Scaler

Place = tuple[str, int]
"""A subnet's name and a family."""


class Projection:
    def __init__(self) -> None:
        self._requests: defaultdict[Place, Counter[int]] = defaultdict(Counter)

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
        return sum(count * contribution(scaler, requested) for requested, count in requests.items())


def _requests(nnc: NodeNetworkConfig | None) -> Iterable[tuple[Place, int]]:
    if nnc is None:
        return
    wanted = (nnc.spec.secondary_ips if nnc.spec else None) or {}
    left = scalers.maximum_in(nnc.metadata.annotations)
    for each in containers_of(nnc):
        family = family_of(each.primary_ip or each.subnet_address_space)
        requested = min(wanted.get(each.id, 0), left)
        left -= requested
        yield (each.subnet_name, family), requested

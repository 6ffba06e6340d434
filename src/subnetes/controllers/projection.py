"""How many IPs a subnet's nodes would hold if nobody were squeezed: kept up to date, change by change.

An NNC that changes costs as much as it has NCs. The sum costs as much as there are different requests in the
subnet (a few hundred at most), whatever the number of nodes, and is right for any scaler. What is above a
node's maximum, asked for or as a buffer, it is never granted, and does not count. The NNC informer feeds it,
the ClusterSubnet controller asks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from subnetes.api import names
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import requests, scalers
from subnetes.controllers.placement import family_of
from subnetes.controllers.status import containers_of
from subnetes.ipam.exhaustion import contribution, most, old_contribution
from subnetes.ipam.scaling import Scaler

Place = tuple[str, int]
"""A subnet's name and a family."""

Request = tuple[int, int, bool]
"""How many IPs, the most that there can be, and whether an agent that only knows v1alpha asked for them: it
scales otherwise."""


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
            count * (old_contribution if is_old else contribution)(scaler, requested, ceiling)
            for (requested, ceiling, is_old), count in requests.items()
        )


def _requests(nnc: NodeNetworkConfig | None) -> Iterable[tuple[Place, Request]]:
    if nnc is None:
        return
    containers, annotations = containers_of(nnc), nnc.metadata.annotations or {}
    held = {each.id: len(each.secondary_ips or ()) for each in containers}
    wanted = requests.stated(nnc, held, annotations.get(names.DRAINING, "").split(","))
    maximum, is_old = scalers.maximum_in(annotations), requests.asked_in_v1alpha(nnc)
    left, counts = maximum, list[int]()
    for each in containers:
        counts.append(min(wanted.get(each.id, 0), left))
        left -= counts[-1]
    for number, (each, requested) in enumerate(zip(containers, counts, strict=True)):
        family = family_of(each.primary_ip or each.subnet_address_space)
        ceiling = most(maximum, requested, counts[:number] + counts[number + 1 :])
        yield (each.subnet_name, family), (requested, ceiling, is_old)

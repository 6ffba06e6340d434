"""What DNC does, as its callers see it. `SqlAllocator` does it; `HttpAllocator` has another process do it.

Every mutation is one transaction and idempotent: after an ambiguous failure the caller repeats it. What can
go wrong is drawn in `errors.py`.
"""

from collections.abc import Sequence
from typing import Protocol

from subnetes.dnc.types import (
    NC,
    AdoptedNC,
    Conflict,
    Declaration,
    Fence,
    SetResult,
    Subnet,
    SubnetKey,
    Utilization,
    Waiter,
)


class Allocator(Protocol):
    async def ensure_subnet(self, declaration: Declaration) -> Utilization:
        """Create it, grow it, change its gateway or excludes.

        SubnetInUse: it would lose addresses that are held. SubnetInvalid: see its text; also an overlap with
        another subnet of the same network.
        """

    async def delete_subnet(self, key: SubnetKey) -> None:
        """SubnetInUse while NCs draw from it; of an unknown one, nothing."""

    async def ensure_nc(self, cluster: str, node: str, subnet: SubnetKey) -> NC:
        """The node's NC in this subnet; a new one has a primary and no secondary IPs.

        SubnetUnknown: not declared. SubnetFull: no primary left; the node waits now, before all who wait
        for secondary IPs, and asks again by calling again.
        """

    async def set_secondary(
        self, cluster: str, nc_id: str, fence: Fence, target: int, released: Sequence[str]
    ) -> SetResult:
        """Take out what is released and the NC's own, then grant up to the target, as far as there is room
        and older requests do not come first. Nothing is ever taken that was not released.

        What is taken out is `leaving`, and reserved until `confirm`: the NNC still shows it.
        StaleReading: a newer reading was used already. NCUnknown.
        """

    async def confirm(self, cluster: str, nc_id: str, ids: Sequence[str]) -> int:
        """The NNC shows these no longer: free those of them that are leaving the NC.

        How many addresses others may have now. Of an unknown NC: 0.
        """

    async def release_wait(self, cluster: str, node: str, subnet: SubnetKey) -> None:
        """The node no longer waits for a primary: it is gone."""

    async def adopt(self, cluster: str, ncs: Sequence[AdoptedNC]) -> tuple[Conflict, ...]:
        """Take NCs into the record as their NNCs show them, ids kept; the same call again gives the same."""

    async def delete_nc(self, cluster: str, nc_id: str) -> int:
        """Free everything of it; how many addresses others may have now. Of an unknown one: 0."""

    async def nc(self, cluster: str, nc_id: str) -> NC:
        """NCUnknown."""

    async def ncs(self, cluster: str, node: str | None = None) -> list[NC]:
        """All of a cluster's, or of one of its nodes."""

    async def waiting(self, key: SubnetKey) -> list[Waiter]:
        """In the order in which they are served. Over HTTP: those of the caller's cluster."""

    async def utilization(self, key: SubnetKey) -> Utilization:
        """SubnetUnknown."""

    async def subnets(self) -> list[Subnet]:
        """All on record, undeclared ones too."""

    async def close(self) -> None:
        """Give back connections and files."""

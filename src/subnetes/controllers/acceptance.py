"""What DNC accepted of the ClusterSubnets: each is declared once a generation, and withdrawn when it goes.

The ClusterSubnet controller asks; what DNC refuses is a `Verdict`, for the subnet's status. Whoever waits for
IPs or shows a gateway or CIDR that changed is looked at again.
"""

from dataclasses import replace

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.controllers import declarations, subnet_status
from subnetes.controllers.subnet_status import Level, Verdict
from subnetes.controllers.term import Stores, Term, Wakes
from subnetes.controllers.waiters import Waiters
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError, SubnetInUse, SubnetUnknown
from subnetes.dnc.types import Declaration, SubnetKey
from subnetes.kube.key import Key


class Acceptance:
    def __init__(
        self, term: Term, allocator: Allocator, stores: Stores, waiters: Waiters, wakes: Wakes
    ) -> None:
        self._term = term
        self._allocator = allocator
        self._stores = stores
        self._waiters = waiters
        self._wakes = wakes
        self._accepted: dict[Key, tuple[str, int]] = {}  # uid and generation that DNC has
        self._declared: dict[SubnetKey, Declaration] = {}  # what DNC has of each family

    def forget(self, key: Key) -> None:
        self._accepted.pop(key, None)
        for each in [each for each in self._declared if each.name == key.name]:
            del self._declared[each]

    async def declare(self, key: Key, subnet: ClusterSubnet) -> Verdict:
        """Have DNC know the subnet as it is declared; at most once a generation, unless it is refused."""
        keys = [each.key for each in declarations.declarations_of(subnet)]
        state = (subnet.metadata.uid or "", subnet.metadata.generation or 0)
        if self._accepted.get(key) == state:
            levels = await self._levels(keys)
            if len(levels) == len(keys):
                return subnet_status.good(levels)
            self.forget(key)  # another cluster that shares DNC had it forgotten
        problem = declarations.problem_with(subnet)
        refusal = subnet_status.invalid(problem) if problem else await self._ensure(subnet)
        if refusal is not None:
            self._accepted.pop(key, None)
            return replace(refusal, levels=await self._levels(keys))
        if await self._forget_families(keys):
            self._accepted[key] = state
        return subnet_status.good(await self._levels(keys))

    async def _forget_families(self, declared: list[SubnetKey]) -> bool:
        """A family that the spec no longer has goes when its NCs have drained; whether it is gone."""
        gone = True
        for family in {4, 6} - {key.family for key in declared}:
            self._term.must_lead()
            try:
                await self._delete(replace(declared[0], family=family))
            except SubnetInUse:
                gone = False
        return gone

    async def _ensure(self, subnet: ClusterSubnet) -> Verdict | None:
        for declaration in declarations.declarations_of(subnet):
            self._term.must_lead()
            refusal = await self._ensure_one(declaration)
            if refusal is not None:
                return refusal
        return None

    async def _ensure_one(self, declaration: Declaration) -> Verdict | None:
        if self._declared.get(declaration.key) == declaration:
            return None
        try:
            utilization = await self._allocator.ensure_subnet(declaration)
        except DncError as problem:
            if problem.temporary:
                raise
            return subnet_status.refused(problem)
        for nnc in self._stores.holders(declaration.key.name):  # their statuses show its gateway and its CIDR
            self._wakes.node(nnc.metadata.name)
        await self._waiters.changed(declaration.key, utilization.free)
        self._declared[declaration.key] = declaration
        return None

    async def _levels(self, keys: list[SubnetKey]) -> tuple[Level, ...]:
        found = []
        for key in keys:
            try:
                now = await self._allocator.utilization(key)
            except SubnetUnknown:
                continue
            found.append(Level(key.family, now.capacity, now.reserved))
        return tuple(found)

    async def withdraw(self, subnet: ClusterSubnet) -> str:
        """Why DNC cannot forget it yet, empty if it has."""
        for family in (4, 6):
            self._term.must_lead()
            key = SubnetKey(subnet.spec.network_id or "", subnet.metadata.name, family)
            try:
                await self._delete(key)
            except SubnetInUse as problem:
                return problem.message
        return ""

    async def _delete(self, key: SubnetKey) -> None:
        await self._allocator.delete_subnet(key)
        self._declared.pop(key, None)

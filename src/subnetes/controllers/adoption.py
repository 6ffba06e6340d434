"""Becoming leader: what the NNCs show is the record, so DNC takes it in before the first grant.

    list all NNCs (quorum) ── stamp each with this term's identity ── adopt the stamped answers
        ── adopt the ConfigMaps of returning nodes ── declare the subnets ── controllers start

A subnet is known at first from what its NCs show (shown.py). Then it is declared as its spec says, or, where
that is refused, as it was accepted last.

The stamp changes an NNC's resourceVersion. Whatever a former leader still has under way was read before it,
so its write conflicts; and what had come through is in the answer. The same code takes over NNCs that another
control plane wrote. What contradicts itself is reported, in an event and in a condition of the ClusterSubnet,
and never granted.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import ConfigMap
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.controllers import returning, shown
from subnetes.controllers.declarations import accepted, declarations_of
from subnetes.controllers.returning import Returning
from subnetes.controllers.shown import Shown
from subnetes.controllers.status import containers_of
from subnetes.controllers.term import Api, Events, Stores, Term
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError, Temporary
from subnetes.dnc.types import NC, AdoptedNC, Conflict, Declaration, SubnetKey
from subnetes.kube.errors import ApiError, NotFound
from subnetes.kube.errors import Conflict as Changed
from subnetes.kube.patches import MergePatch

AT_ONCE = 16  # requests
TOGETHER = 64  # NNCs in one call of DNC


@dataclass(frozen=True, slots=True)
class Planted:
    """A conflict, and where it was found."""

    node: str
    subnet: str
    conflict: Conflict

    def __str__(self) -> str:
        what = self.conflict.address or f"network container {self.conflict.nc}"
        return f"{what} on node {self.node}: {self.conflict.reason}"


@dataclass(frozen=True)
class Parts:
    """What it works with beside the API and DNC."""

    returning: Returning
    events: Events


class Adoption:
    def __init__(self, term: Term, api: Api, allocator: Allocator, stores: Stores, parts: Parts) -> None:
        self._term = term
        self._api = api
        self._allocator = allocator
        self._stores = stores
        self._returning = parts.returning
        self._events = parts.events
        self._shown = Shown()
        self._refused: dict[str, set[str]] = {}  # NCs that DNC could not take, by node
        self.conflicts: dict[str, list[Planted]] = {}  # by subnet name

    async def run(self) -> set[str]:
        """Take everything over; the nodes that DNC knows NCs of, and no NNC shows."""
        subnets: list[ClusterSubnet] = (await self._api.list(ClusterSubnet, self._term.namespace)).items
        self._shown.know(subnets)
        listed: list[NodeNetworkConfig] = (
            await self._api.list(NodeNetworkConfig, self._term.namespace)
        ).items
        stamped = await self._stamp_all(listed)
        self._shown.widen(each for nnc in stamped for each in containers_of(nnc))
        for start in range(0, len(stamped), TOGETHER):
            await self._adopt(stamped[start : start + TOGETHER])
        await self._adopt_stashes({each.metadata.name: each for each in stamped})
        for subnet in subnets:
            await self._declare(subnet)
        nodes = {each.metadata.name for each in stamped}
        unshown = [nc for nc in await self._allocator.ncs(self._term.cluster) if nc.node not in nodes]
        await self._begin_anew(unshown)
        return {nc.node for nc in unshown}

    async def _begin_anew(self, ncs: Sequence[NC]) -> None:
        """A DNC with a record of its own may be older than this API server, and fence by higher readings."""
        found = [shown.recorded(nc) for nc in ncs if not nc.shown_as]
        for start in range(0, len(found), TOGETHER):
            await self._have_adopted(found[start : start + TOGETHER])

    def strangers(self, nnc: NodeNetworkConfig, ncs: Iterable[NC]) -> list[NetworkContainer]:
        """What the NNC shows and DNC could not take into its record: left as it is, for pods may use it."""
        refused = self._refused.get(nnc.metadata.name)
        if not refused:
            return []
        known = {nc.id for nc in ncs}
        return [each for each in containers_of(nnc) if each.id in refused and each.id not in known]

    async def take(self, nnc: NodeNetworkConfig) -> None:
        """One NNC that somebody else wrote since we lead."""
        stamped = await self._stamp(nnc)
        if stamped is not None:
            self._shown.know(self._stores.subnets)
            self._shown.widen(containers_of(stamped))
            await self._adopt([stamped])

    async def _stamp_all(self, nncs: Sequence[NodeNetworkConfig]) -> list[NodeNetworkConfig]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def stamp(nnc: NodeNetworkConfig) -> NodeNetworkConfig | None:
            async with turns:
                return await self._stamp(nnc)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(stamp(nnc)) for nnc in nncs]
        except* ApiError as problems:
            raise problems.exceptions[0] from None
        return [stamped for task in tasks if (stamped := task.result()) is not None]

    async def _stamp(self, nnc: NodeNetworkConfig) -> NodeNetworkConfig | None:
        """The NNC as it is once it carries our name; none if it went away meanwhile."""
        try:
            while not self._term.grants(nnc):
                try:
                    nnc = await self._write_stamp(nnc)
                except Changed:
                    nnc = await self._api.get(NodeNetworkConfig, nnc.metadata.name, nnc.metadata.namespace)
        except NotFound:
            return None
        return nnc

    async def _write_stamp(self, nnc: NodeNetworkConfig) -> NodeNetworkConfig:
        self._term.must_lead()
        metadata: dict[str, object] = {
            "resourceVersion": nnc.metadata.resource_version,
            "annotations": {names.GRANTER: self._term.identity},
        }
        finalizers = nnc.metadata.finalizers or []
        if names.RELEASE_FINALIZER not in finalizers and nnc.metadata.deletion_timestamp is None:
            metadata["finalizers"] = [*finalizers, names.RELEASE_FINALIZER]
        patch = MergePatch({"metadata": metadata})
        stamped: NodeNetworkConfig = await self._api.patch(
            NodeNetworkConfig, nnc.metadata.name, patch, nnc.metadata.namespace
        )
        return stamped

    async def _adopt(self, nncs: Sequence[NodeNetworkConfig]) -> None:
        found = [self._shown.adopted(nnc.metadata.name, each) for nnc in nncs for each in containers_of(nnc)]
        by_node = {nnc.metadata.name: nnc for nnc in nncs}
        for planted in await self._have_adopted(found):
            self._events.warning(by_node[planted.node], "AddressConflict", f"not adopted: {planted}")

    async def _have_adopted(self, ncs: Sequence[AdoptedNC]) -> list[Planted]:
        self._term.must_lead()
        if not ncs:
            return []
        homes = {nc.id: nc for nc in ncs}
        planted = [
            Planted(homes[each.nc].node, homes[each.nc].subnet.name, each)
            for each in await self._allocator.adopt(self._term.cluster, ncs)
        ]
        for each in planted:
            if not each.conflict.address:
                self._refused.setdefault(each.node, set()).add(each.conflict.nc)
            known = self.conflicts.setdefault(each.subnet, [])
            known[:] = [old for old in known if old != each] + [each]
        return planted

    async def _adopt_stashes(self, nncs: dict[str, NodeNetworkConfig]) -> None:
        found: Iterable[ConfigMap] = (
            await self._api.list(ConfigMap, self._term.namespace, label_selector=names.RETURNING)
        ).items
        for each in found:
            stash = returning.read(each)
            if stash is None:
                continue
            if returning.is_the_record(stash, nncs.get):
                self._shown.widen(stash.containers)
                await self._have_adopted([self._shown.adopted(stash.node, nc) for nc in stash.containers])
                self._returning.found(stash)
            else:
                await self._returning.restored(stash.node)

    async def _declare(self, subnet: ClusterSubnet) -> None:
        """So that nobody is told of a full subnet that is only unknown; what is wrong its controller says."""
        before = accepted(subnet)
        known = {each.key: each for each in declarations_of(before)} if before else {}
        for declaration in declarations_of(subnet):
            if await self._declared(declaration) or declaration.key not in known:
                continue
            if not await self._serves(declaration.key):  # a DNC with a record of its own serves it as it was
                await self._declared(known[declaration.key])

    async def _serves(self, key: SubnetKey) -> bool:
        return any(each.declared and each.key == key for each in await self._allocator.subnets())

    async def _declared(self, declaration: Declaration) -> bool:
        try:
            await self._allocator.ensure_subnet(declaration)
        except Temporary:
            raise
        except DncError:
            return False
        return True


def standing(planted: Planted, holder: NodeNetworkConfig | None) -> bool:
    """Whether the conflict is still there: the NC still shows what it was about."""
    if holder is None:
        return False
    nc = next((each for each in containers_of(holder) if each.id == planted.conflict.nc), None)
    if nc is None:
        return False
    return not planted.conflict.id or planted.conflict.id in {ip.id for ip in nc.secondary_ips or ()}

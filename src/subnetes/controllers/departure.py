"""A node goes: its IPs stay reserved for a grace, for its machine and pods may live on; then they are freed.

    Node gone ── NNC marked by the garbage collector, else by us ── grace
        ── status emptied ── DNC frees ── finalizer off

The deletion's own time starts the grace, so a controller that was down does not begin it anew. etcd stops
showing an IP before DNC may give it to another: a crash between two steps leaves nothing owned twice. Nothing
is granted meanwhile; what the agent releases is taken. A Node of that name that is back within the grace gets
everything back (returning.py).
"""

import contextlib

import msgspec

from subnetes.api import names
from subnetes.api.core import Node
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.controllers import requests, status, usage
from subnetes.controllers.placement import keys_of
from subnetes.controllers.returning import Returning
from subnetes.controllers.term import Api, Events, Stores, Term
from subnetes.controllers.waiters import Waiters
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.types import NC, Fence
from subnetes.kube.controller import Result
from subnetes.kube.errors import NotFound
from subnetes.kube.patches import MergePatch

_CATCH_UP = 1.0  # seconds: our copy of the Nodes is behind the API server
_ROUNDING = 1.0  # seconds: a deletion's time has no fractions, and the grace is a promise


class Departures:
    def __init__(
        self, term: Term, api: Api, allocator: Allocator, stores: Stores, events: Events, waiters: Waiters
    ) -> None:
        self.returning = Returning(term, api)
        self._term = term
        self._api = api
        self._allocator = allocator
        self._stores = stores
        self._events = events
        self._waiters = waiters
        self._missing_since: dict[str, float] = {}

    async def see_to(self, nnc: NodeNetworkConfig) -> Result | None:
        """The NNC is going, or its Node is not in our store."""
        name = nnc.metadata.name
        node = await self._node(name)
        if nnc.metadata.deletion_timestamp is None:
            return await self._mark(nnc, node)
        if names.RELEASE_FINALIZER not in (nnc.metadata.finalizers or ()):
            return None  # somebody else's finalizer holds it; ours is done
        if node is not None and node.metadata.deletion_timestamp is None:
            await self._return(nnc)
            return None
        ncs = await self._let_go(nnc)
        await self._stop_waiting(name, ncs)
        left = self._left(status.seconds(nnc.metadata.deletion_timestamp) + _ROUNDING)
        if left > 0:
            shown = await self._show(nnc, ncs)
            for nc in ncs:
                await self._waiters.let_go(nc, shown)
            return Result(requeue_after=left)
        await self._end(nnc, ncs)
        return None

    async def without_nnc(self, name: str) -> Result | None:
        """Neither NNC nor Node, and DNC still has something: it was stashed, or a finalizer torn off."""
        ncs = await self._allocator.ncs(self._term.cluster, name)
        if not ncs and not self.returning.has(name):
            self._missing_since.pop(name, None)
            return None
        if self._stores.node(name) is not None or await self._node(name) is not None:
            self._missing_since.pop(name, None)
            return None  # it will have an NNC in a moment, and everything in it
        first_seen = self._missing_since.setdefault(name, self._term.now())
        left = self._left(max(first_seen, self.returning.since(name) or 0.0))
        if left > 0:
            return Result(requeue_after=left)
        await self.returning.restored(name)
        await self._free(ncs)
        self._missing_since.pop(name, None)
        return None

    async def _node(self, name: str) -> Node | None:
        """As the quorum knows it: IPs are not freed by a copy that is behind."""
        try:
            node: Node = await self._api.get(Node, name)
        except NotFound:
            return None
        return node

    def _strangers(self, nnc: NodeNetworkConfig, ncs: list[NC]) -> list[NetworkContainer]:
        """What DNC could not take into its record: shown as it was found."""
        known = {nc.id for nc in ncs}
        return [each for each in status.containers_of(nnc) if each.id not in known]

    async def _mark(self, nnc: NodeNetworkConfig, node: Node | None) -> Result | None:
        """The garbage collector would do it in time; that the grace begins must not depend on it."""
        if node is not None:
            return Result(requeue_after=_CATCH_UP)
        self._term.must_lead()
        with contextlib.suppress(NotFound):
            await self._api.delete(
                NodeNetworkConfig, nnc.metadata.name, nnc.metadata.namespace, uid=nnc.metadata.uid
            )
        return None

    async def _let_go(self, nnc: NodeNetworkConfig) -> list[NC]:
        """Take what the agent still releases; a target of 0 asks for nothing and takes nothing."""
        ncs = await self._allocator.ncs(self._term.cluster, nnc.metadata.name)
        request = requests.read(nnc, ncs, 0)
        used = await usage.users(self._api, nnc.metadata.name, ncs, request)
        asks = requests.read(nnc, ncs, 0, in_use=used).asks
        return [await self._release(nnc, nc, asks[nc.id]) for nc in ncs]

    async def _release(self, nnc: NodeNetworkConfig, nc: NC, ask: requests.Ask) -> NC:
        if not ask.is_news_to(nc):
            return nc
        self._term.must_lead()
        fence = Fence(nnc.metadata.uid or "", int(nnc.metadata.resource_version or 0))
        result = await self._allocator.set_secondary(
            self._term.cluster, nc.id, fence, ask.target, ask.released
        )
        await self._waiters.answered(nc, result.nc)
        return result.nc

    async def _stop_waiting(self, name: str, ncs: list[NC]) -> None:
        """No primary is kept back for a node that is gone."""
        served = {nc.subnet for nc in ncs}
        for key in [key for subnet in self._stores.subnets for key in keys_of(subnet) if key not in served]:
            await self._waiters.gives_up(name, key)

    async def _show(self, nnc: NodeNetworkConfig, ncs: list[NC]) -> NodeNetworkConfig:
        """The status as DNC's record now is; of NCs that it does not show, nothing."""
        before = {each.id: each for each in status.containers_of(nnc)}
        containers = [status.container(nc, "", 0, before[nc.id]) for nc in ncs if nc.id in before]
        return await self._write(nnc, containers + self._strangers(nnc, ncs))

    async def _write(self, nnc: NodeNetworkConfig, containers: list[NetworkContainer]) -> NodeNetworkConfig:
        wanted = status.node_status(nnc, containers, short=False)
        if nnc.status is None or wanted == nnc.status:
            return nnc
        self._term.must_lead()
        written: NodeNetworkConfig = await self._api.update_status(
            msgspec.structs.replace(nnc, status=wanted)
        )
        return written

    async def _return(self, nnc: NodeNetworkConfig) -> None:
        if status.containers_of(nnc):
            await self.returning.stash(nnc)
        elif nnc.status is not None:  # it was too late: what a former leader began to free may go any moment
            await self._free(await self._allocator.ncs(self._term.cluster, nnc.metadata.name))
        await self._take_finalizer_off(nnc)

    async def _end(self, nnc: NodeNetworkConfig, ncs: list[NC]) -> None:
        nnc = await self._write(nnc, [])
        if self.returning.has(nnc.metadata.name):  # it was about to return, and went again
            await self.returning.restored(nnc.metadata.name)
        await self._free(ncs)
        await self._take_finalizer_off(nnc)
        self._events.normal(nnc, "NodeGone", "the node did not come back: its IPs are free")

    async def _free(self, ncs: list[NC]) -> None:
        for nc in ncs:
            self._term.must_lead()
            freed = await self._allocator.delete_nc(self._term.cluster, nc.id)
            await self._waiters.changed(nc.subnet, freed)

    async def _take_finalizer_off(self, nnc: NodeNetworkConfig) -> None:
        self._term.must_lead()
        left = [each for each in nnc.metadata.finalizers or () if each != names.RELEASE_FINALIZER]
        document = {
            "metadata": {"resourceVersion": nnc.metadata.resource_version, "finalizers": left or None}
        }
        with contextlib.suppress(NotFound):
            await self._api.patch(
                NodeNetworkConfig, nnc.metadata.name, MergePatch(document), nnc.metadata.namespace
            )

    def _left(self, since: float) -> float:
        return since + self._term.node_grace - self._term.now()

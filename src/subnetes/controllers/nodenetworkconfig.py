"""NodeNetworkConfigController: has DNC meet what a node's agent asks for, and writes what it was granted.

read (NNC, Node, subnets, DNC's record) → decide (placement.py, requests.py, status.py) → DNC → one status
write. It carries the resourceVersion that was read; if the NNC changed meanwhile, everything is looked at
again, and DNC gives the same answer. A node that goes is departure.py's, one that comes back returning.py's,
an NNC that another control plane wrote adoption.py's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from subnetes.api import names
from subnetes.api.core import Node
from subnetes.api.model import to_builtins
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import requests, scalers, status, usage
from subnetes.controllers.adoption import Adoption
from subnetes.controllers.departure import Departures
from subnetes.controllers.node import owner, scaler_annotations
from subnetes.controllers.notices import Notices
from subnetes.controllers.placement import declared, internal_ip, keys_of, maximum_of
from subnetes.controllers.term import Api, Events, Stores, Term, as_trouble
from subnetes.controllers.waiters import Waiters
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError, SubnetFull, SubnetUnknown
from subnetes.dnc.types import NC, Fence, SubnetKey
from subnetes.kube.controller import Result
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch

LOOK_AGAIN = 5.0  # seconds: a pod's end is not told to us
ASK_AGAIN = 30.0  # seconds: how long who waits may wait for a wake-up that was lost


@dataclass
class Holdings:
    """What the node has at one look, and what it still lacks."""

    ncs: list[NC]
    draining: set[str] = field(default_factory=set)
    lacking: dict[SubnetKey, str] = field(default_factory=dict)  # subnets without a primary for it, and why

    def kept(self) -> list[NC]:
        return [nc for nc in self.ncs if not self._empty(nc)]

    def emptied(self) -> list[NC]:
        return [nc for nc in self.ncs if self._empty(nc)]

    def _empty(self, nc: NC) -> bool:
        return nc.id in self.draining and not nc.secondary


@dataclass(frozen=True)
class Parts:
    """What the reconciler is made of."""

    api: Api
    allocator: Allocator
    stores: Stores
    events: Events
    waiters: Waiters
    adoption: Adoption
    departures: Departures


class NodeNetworkConfigReconciler:
    def __init__(self, term: Term, parts: Parts) -> None:
        self._term = term
        self._api = parts.api
        self._allocator = parts.allocator
        self._stores = parts.stores
        self._waiters = parts.waiters
        self._adoption = parts.adoption
        self._departures = parts.departures
        self._notices = Notices(parts.events)
        self._lacked: dict[str, set[SubnetKey]] = {}  # nodes that wait for a primary, and where

    async def reconcile(self, key: Key) -> Result | None:
        try:
            return await self._look(key)
        except DncError as problem:
            raise as_trouble(problem) from problem

    async def _look(self, key: Key) -> Result | None:
        nnc, node = self._stores.nncs.get(key), self._stores.node(key.name)
        if nnc is None:
            self._notices.forget(key)
            self._lacked.pop(key.name, None)
            return await self._departures.without_nnc(key.name)
        self._term.must_lead()
        if not self._term.grants(nnc):
            await self._adoption.take(nnc)  # what it writes brings us back
            return None
        if node is None or nnc.metadata.deletion_timestamp is not None:
            return await self._departures.see_to(nnc)
        if not _owned_by(nnc, node):
            await self._own(nnc, node)
            return None
        return await self._serve(nnc, node)

    async def _serve(self, nnc: NodeNetworkConfig, node: Node) -> Result | None:
        held = await self._holdings(node)
        if self._departures.returning.has(node.metadata.name):
            return await self._restore(nnc, node, held)
        nnc = await self._announce(nnc, node)
        maximum = maximum_of(node, scalers.imported_maximum(nnc.metadata.annotations))
        request = requests.read(nnc, held.ncs, maximum, held.draining)
        used = await usage.users(self._api, node.metadata.name, held.ncs, request)
        if used:
            request = requests.read(nnc, held.ncs, maximum, held.draining, used)
        held.ncs = [await self._meet(nnc, nc, request.asks[nc.id]) for nc in held.ncs]
        written = await self._write_status(nnc, node, held, request)
        for nc in held.kept():
            await self._waiters.let_go(nc, written)
        for nc in held.emptied():
            await self._delete(nnc, nc)
        await self._annotate(written, node, held)
        self._notices.strange(nnc, request)
        self._notices.used(nnc, used)
        if used:
            return Result(requeue_after=LOOK_AGAIN)
        short = held.lacking or any(request.asks[nc.id].target > len(nc.secondary) for nc in held.ncs)
        return Result(requeue_after=ASK_AGAIN) if short else None

    async def _holdings(self, node: Node) -> Holdings:
        """What DNC has on record for the node, completed by NCs of the subnets that it draws from."""
        name, wanted = (
            node.metadata.name,
            [key for each in self._stores.drawn_from(node) for key in keys_of(each)],
        )
        on_record = await self._allocator.ncs(self._term.cluster, name)
        held = Holdings([nc for nc in on_record if not nc.shown_as])  # the others' ids are a stranger's here
        present = {nc.subnet for nc in held.ncs}
        for key in wanted:
            if key not in present:
                await self._ensure(name, key, held)
        for key in self._lacked.pop(name, set()).difference(wanted):
            await self._waiters.gives_up(name, key)
        if held.lacking:
            self._lacked[name] = set(held.lacking)
        held.draining = {nc.id for nc in held.ncs if self._drains(nc, wanted)}
        rank = {key: number for number, key in enumerate(wanted)}
        held.ncs.sort(key=lambda nc: (rank.get(nc.subnet, len(rank)), nc.id))
        return held

    async def _ensure(self, node: str, key: SubnetKey, held: Holdings) -> None:
        self._term.must_lead()
        try:
            held.ncs.append(await self._allocator.ensure_nc(self._term.cluster, node, key))
        except (SubnetFull, SubnetUnknown) as problem:
            held.lacking[key] = problem.message
        else:
            await self._waiters.changed(key)

    def _drains(self, nc: NC, wanted: Sequence[SubnetKey]) -> bool:
        """A subnet that was never accepted here is another control plane's still: it is left as it is."""
        subnet = self._stores.subnets.get(Key(self._term.namespace, nc.subnet.name))
        if subnet is None or (subnet.metadata.deletion_timestamp is None and not declared(subnet)):
            return False
        return nc.subnet not in wanted

    async def _meet(self, nnc: NodeNetworkConfig, nc: NC, ask: requests.Ask) -> NC:
        if not ask.is_news_to(nc):
            return nc
        self._term.must_lead()
        result = await self._allocator.set_secondary(
            self._term.cluster, nc.id, fence_of(nnc), ask.target, ask.released
        )
        self._notices.refused(nnc, nc.id, result.refused)
        await self._waiters.answered(nc, result.nc)
        return result.nc

    async def _restore(self, nnc: NodeNetworkConfig, node: Node, held: Holdings) -> Result:
        """A node that came back gets what it had before anything else happens to it."""
        as_it_was = {nc.id: requests.Ask(0, ()) for nc in held.ncs}
        await self._write_status(nnc, node, held, requests.Request(as_it_was, (), 0), drop=False)
        await self._departures.returning.restored(node.metadata.name)
        self._notices.returned(nnc)
        return Result(requeue_after=0.0)

    async def _write_status(
        self,
        nnc: NodeNetworkConfig,
        node: Node,
        held: Holdings,
        request: requests.Request,
        *,
        drop: bool = True,
    ) -> NodeNetworkConfig:
        before = {each.id: each for each in status.containers_of(nnc)}
        containers = [
            status.container(nc, internal_ip(node), request.asks[nc.id].target, before.get(nc.id))
            for nc in (held.kept() if drop else held.ncs)
        ]
        containers += self._adoption.strangers(nnc, held.ncs)
        if nnc.status is None and not containers and not held.lacking:
            return nnc  # no subnet for this node yet: nothing to say
        full = status.newly_full(before.values(), containers)
        short = bool(held.lacking) or any(each.status == status.FULL for each in containers)
        wanted = status.node_status(nnc, containers, short=short)
        if wanted != nnc.status:
            self._term.must_lead()
            nnc = await self._api.update_status(msgspec.structs.replace(nnc, status=wanted))
        self._notices.short(nnc, full, held.lacking)
        return nnc

    async def _delete(self, nnc: NodeNetworkConfig, nc: NC) -> None:
        """Only after the status no longer shows it: what etcd shows is never another's."""
        self._term.must_lead()
        self._notices.dropped(nnc, nc.id)
        freed = await self._allocator.delete_nc(self._term.cluster, nc.id)
        await self._waiters.changed(nc.subnet, freed)

    async def _announce(self, nnc: NodeNetworkConfig, node: Node) -> NodeNetworkConfig:
        """An agent of old that sees an NC before any scaling values takes them for zero: these come first."""
        present = nnc.metadata.annotations or {}
        news = {} if names.SCALER in present else scaler_annotations(self._stores, node, present)
        return await self._patch(nnc, {"annotations": news}) if news else nnc

    async def _annotate(self, nnc: NodeNetworkConfig, node: Node, held: Holdings) -> None:
        kept = {nc.id for nc in held.kept()}
        draining = ",".join(sorted(held.draining & kept))
        wanted: dict[str, str | None] = {names.DRAINING: draining or None}
        present = nnc.metadata.annotations or {}
        wanted |= scaler_annotations(self._stores, node, present)
        news = {name: text for name, text in wanted.items() if present.get(name) != text}
        if news:
            await self._patch(nnc, {"annotations": news})

    async def _own(self, nnc: NodeNetworkConfig, node: Node) -> None:
        """The Node was made again before anybody collected its NNC, or somebody else made the NNC.

        Agents of old act only on an NNC that their Node controls; there is one controller.
        """
        others = [
            msgspec.structs.replace(each, controller=None)
            for each in nnc.metadata.owner_references or ()
            if each.kind != "Node"
        ]
        references = [to_builtins(each) for each in (*others, owner(node))]
        await self._patch(nnc, {"ownerReferences": references})

    async def _patch(self, nnc: NodeNetworkConfig, metadata: dict[str, object]) -> NodeNetworkConfig:
        self._term.must_lead()
        document = {"metadata": {"resourceVersion": nnc.metadata.resource_version, **metadata}}
        return await self._api.patch(
            NodeNetworkConfig, nnc.metadata.name, MergePatch(document), nnc.metadata.namespace
        )


def fence_of(nnc: NodeNetworkConfig) -> Fence:
    version = nnc.metadata.resource_version or "0"
    return Fence(nnc.metadata.uid or "", int(version))


def _owned_by(nnc: NodeNetworkConfig, node: Node) -> bool:
    references = nnc.metadata.owner_references or ()
    return any(each.uid == node.metadata.uid and each.controller for each in references)

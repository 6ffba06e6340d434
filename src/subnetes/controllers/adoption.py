"""Becoming leader: what the NNCs show is the record, so DNC takes it in before the first grant.

    list all NNCs (quorum) ── stamp each with this term's identity ── adopt the stamped answers
        ── adopt the ConfigMaps of returning nodes ── declare the subnets ── controllers start

A subnet is known at first from what its NCs show: of several CIDRs (it has grown, and not every status says
so yet) the widest, for an address outside of it would be nobody's, and another's soon. Then it is declared as
its spec says, or, where that is refused, as it was accepted last.

The stamp changes an NNC's resourceVersion. Whatever a former leader still has under way was read before it,
so its write conflicts; and what had come through is in the answer. The same code takes over NNCs that another
control plane wrote. What contradicts itself is reported, in an event and in a condition of the ClusterSubnet,
and never granted.
"""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import ConfigMap
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.controllers import returning
from subnetes.controllers.declarations import accepted, declarations_of
from subnetes.controllers.placement import family_of
from subnetes.controllers.returning import Returning
from subnetes.controllers.status import containers_of, plain
from subnetes.controllers.term import Api, Events, Stores, Term
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError, Temporary
from subnetes.dnc.types import NC, AdoptedNC, Conflict, Declaration, SecondaryIP, SubnetKey
from subnetes.kube.errors import ApiError, NotFound
from subnetes.kube.errors import Conflict as Changed
from subnetes.kube.patches import MergePatch

AT_ONCE = 16  # requests
TOGETHER = 64  # NNCs in one call of DNC
_UNNAMED = uuid.UUID("6a2f5d0e-5d3c-4e0f-9a3b-2f8f3d1c7b60")  # names NCs that were shown without an id


Place = tuple[str, int]
"""A subnet's name and a family."""


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
        self._networks: dict[str, str] = {}  # of each ClusterSubnet
        self._spaces: dict[Place, str] = {}  # the widest CIDR that was accepted or is shown
        self._stated: dict[Place, str] = {}  # the CIDR of the spec
        self._refused: dict[str, set[str]] = {}  # NCs that DNC could not take, by node
        self.conflicts: dict[str, list[Planted]] = {}  # by subnet name

    async def run(self) -> set[str]:
        """Take everything over; the nodes that DNC knows NCs of, and no NNC shows."""
        subnets: list[ClusterSubnet] = (await self._api.list(ClusterSubnet, self._term.namespace)).items
        self._know(subnets)
        listed: list[NodeNetworkConfig] = (
            await self._api.list(NodeNetworkConfig, self._term.namespace)
        ).items
        stamped = await self._stamp_all(listed)
        self._widen(each for nnc in stamped for each in containers_of(nnc))
        for start in range(0, len(stamped), TOGETHER):
            await self._adopt(stamped[start : start + TOGETHER])
        await self._adopt_stashes({each.metadata.name: each for each in stamped})
        for subnet in subnets:
            await self._declare(subnet)
        shown = {each.metadata.name for each in stamped}
        return {nc.node for nc in await self._allocator.ncs(self._term.cluster)} - shown

    def _know(self, subnets: Iterable[ClusterSubnet]) -> None:
        for subnet in subnets:
            self._networks[subnet.metadata.name] = subnet.spec.network_id or ""
            self._stated |= _cidrs(subnet)
            before = accepted(subnet)
            self._spaces |= _cidrs(before) if before else {}

    def _widen(self, containers: Iterable[NetworkContainer]) -> None:
        for each in containers:
            space = each.subnet_address_space or each.subnet_address_space_v6
            place = each.subnet_name, family_of(space)
            if _width(space) > _width(self._spaces.get(place, "")):
                self._spaces[place] = space

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
            self._know(self._stores.subnets)
            self._widen(containers_of(stamped))
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
        found = [self._adopted(nnc.metadata.name, each) for nnc in nncs for each in containers_of(nnc)]
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
                await self._have_adopted([self._adopted(stash.node, nc) for nc in stash.containers])
                self._returning.found(stash)
            else:
                await self._returning.restored(stash.node)

    async def _declare(self, subnet: ClusterSubnet) -> None:
        """So that nobody is told of a full subnet that is only unknown; what is wrong its controller says."""
        before = accepted(subnet)
        known = {each.key: each for each in declarations_of(before)} if before else {}
        for declaration in declarations_of(subnet):
            if not await self._declared(declaration) and declaration.key in known:
                await self._declared(known[declaration.key])

    async def _declared(self, declaration: Declaration) -> bool:
        try:
            await self._allocator.ensure_subnet(declaration)
        except Temporary:
            raise
        except DncError:
            return False
        return True

    def _adopted(self, node: str, found: NetworkContainer) -> AdoptedNC:
        primary = plain(found.primary_ip or found.primary_ip_v6)
        space = found.subnet_address_space or found.subnet_address_space_v6
        family = family_of(primary or space)
        place = found.subnet_name, family
        return AdoptedNC(
            id=found.id or _named(node, primary),
            node=node,
            subnet=SubnetKey(self._networks.get(found.subnet_name, ""), found.subnet_name, family),
            cidr=self._spaces.get(place) or self._stated.get(place, ""),
            gateway=found.default_gateway or found.default_gateway_v6,
            primary=primary,
            version=found.version or 0,
            secondary=tuple(SecondaryIP(ip.id, plain(ip.address)) for ip in found.secondary_ips or ()),
        )


def _named(node: str, primary: str) -> str:
    """An id for an NC that was shown without one: the same whoever adopts it."""
    return str(uuid.uuid5(_UNNAMED, f"{node} {primary}"))


def _cidrs(subnet: ClusterSubnet) -> dict[Place, str]:
    return {(each.key.name, each.key.family): each.cidr for each in declarations_of(subnet)}


def _width(cidr: str) -> int:
    """How many addresses it has; 0: it is no CIDR."""
    try:
        return ip_network(cidr).num_addresses
    except ValueError:
        return 0


def standing(planted: Planted, holder: NodeNetworkConfig | None) -> bool:
    """Whether the conflict is still there: the NC still shows what it was about."""
    if holder is None:
        return False
    shown = next((each for each in containers_of(holder) if each.id == planted.conflict.nc), None)
    if shown is None:
        return False
    return not planted.conflict.id or planted.conflict.id in {ip.id for ip in shown.secondary_ips or ()}

"""Everything that knows of IPs, asked: `subnetes ipam check` takes readings and has them judged.

A `Reader` asks in an order in which what is only on its way is least often seen half-way: pods first, then
the NNCs, then DNC, then the agents and their journals. Pure functions make values of what it gets.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node, Pod
from subnetes.api.meta import Object
from subnetes.api.model import from_builtins, to_builtins
from subnetes.api.names import MAX_IPS, NAMESPACE, SCALER
from subnetes.api.nodenetwork import NodeNetwork
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig
from subnetes.cns.journal import Loaded, read, this_boot, without_assignments
from subnetes.cns.namespaces import HostNamespaces, is_gone
from subnetes.dnc.errors import DncError
from subnetes.dnc.http_client import HttpAllocator
from subnetes.dnc.types import NC
from subnetes.ipam.moves import IP
from subnetes.ipam.snapshot import (
    DEFAULT_MAXIMUM,
    Container,
    Grant,
    NodeConfig,
    NodeFabric,
    NodePool,
    PodRecord,
    RoundTrip,
    Sandbox,
    Snapshot,
    Writer,
)
from subnetes.kube.client import Client
from subnetes.kube.errors import NotFound

JOURNALS = ("journal", "*/journal", "*/state/journal")  # of one node, or of many below one folder
_LABEL = "networking.subnetes.io/"
_TIMEOUT = aiohttp.ClientTimeout(total=15)


class CannotLook(Exception):
    """What could not be asked, and why; with the HTTP status, if there was one."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Dnc:
    """The listener of a controller, whose DNC is in its process, or a DNC of its own."""

    url: str
    cluster: str
    token: str = ""
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look beside the API server."""

    dnc: Dnc | None = None  # None: the NNCs are the record
    states: tuple[tuple[str, Path], ...] = ()  # node (empty: to be found out) and its agent's state folder
    agents: tuple[str, ...] = ()  # URLs of agents' listeners


@dataclass(slots=True)
class Reader:
    client: Client
    places: Places
    _seen: dict[tuple[str, str, str], tuple[Any, tuple[str, ...]]] = field(default_factory=dict)

    async def read(self) -> Snapshot:
        pods = [pod for pod in (await self.client.list(Pod)).items if not pod.spec.host_network]
        nodes = (await self.client.list(Node)).items
        nncs = (await self.client.list(NodeNetworkConfig.resource, NAMESPACE)).items
        others = [*await self._plain(ClusterSubnet), *await self._plain(NodeNetwork)]
        dnc = await self._dnc()
        memories = [await self._memory(url) for url in self.places.agents]
        configs = config_records(nncs, nodes)
        pools = self._pools(configs, memories)
        return Snapshot(
            dnc=dnc,
            configs=configs,
            pools=pools,
            pods=tuple(map(pod_record, pods)),
            sandboxes=self._sandboxes(pools),
            fabrics=tuple(fabrics(others)),
            satisfied=tuple(satisfied(nodes)),
            trips=tuple(map(round_trip, [*nncs, *others])),
        )

    async def _plain(self, kind: type[Object]) -> list[dict[str, Any]]:
        try:
            return (await self.client.list(kind.resource)).items
        except NotFound:
            return []  # a cluster need not have all our kinds

    async def _dnc(self) -> tuple[Container, ...] | None:
        dnc = self.places.dnc
        if dnc is None:
            return None
        try:
            if dnc.url.startswith("https:"):
                return tuple(map(dnc_container, await _of_service(dnc)))
            answer = await self._ask(f"{dnc.url}/debug/ncs")
            return tuple(map(dnc_container, msgspec.json.decode(answer, type=list[NC])))
        except msgspec.MsgspecError as problem:
            raise CannotLook(f"{dnc.url} does not answer as DNC-RC does: {problem}") from problem
        except CannotLook as problem:
            if problem.status not in (401, 404):
                raise
        return tuple(map(dnc_container, await _of_service(dnc)))

    async def _memory(self, url: str) -> tuple[IP, ...]:
        try:
            return msgspec.json.decode(await self._ask(f"{url.rstrip('/')}/debug/pool"), type=_Memory).ips
        except msgspec.MsgspecError as problem:
            raise CannotLook(f"{url} does not answer as an agent does: {problem}") from problem

    async def _ask(self, url: str) -> bytes:
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT) as session,
                session.get(url) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise CannotLook(f"{url} does not answer: {problem or type(problem).__name__}") from problem
        if response.status != 200:
            said = body.decode(errors="replace").strip()
            raise CannotLook(f"{url} answers {response.status}: {said}", response.status)
        return body

    def _pools(
        self, configs: Sequence[NodeConfig], memories: Iterable[tuple[IP, ...]]
    ) -> tuple[NodePool, ...]:
        homes = {nc.id: config.node for config in configs for nc in config.containers}
        told = {_home((ip.nc for ip in memory), homes): memory for memory in memories}
        found = []
        for given, path in journals(self.places.states):
            loaded = read(path)
            node = given or _home(_ncs(loaded), homes)
            if loaded.exists and node:
                found.append(NodePool(node, _pool(loaded), told.get(node), str(path)))
        return tuple(found)

    def _sandboxes(self, pools: Iterable[NodePool]) -> dict[str, tuple[Sandbox, ...]]:
        """Of the nodes whose sandboxes can all be seen from here: those that live, earlier readings' too."""
        namespaces, living = HostNamespaces(), {}
        for pool in pools:
            held = [(ip.holder, ip.address) for ip in pool.journal if ip.holder]
            if all(holder.netns_inode for holder, _ in held):
                for holder, _ in held:
                    mine = tuple(address for each, address in held if each.key == holder.key)
                    self._seen[pool.node, *holder.key] = (holder, mine)
                living[pool.node] = tuple(
                    Sandbox(node, container_id, ifname, addresses)
                    for (node, container_id, ifname), (holder, addresses) in self._seen.items()
                    if node == pool.node and not is_gone(holder, namespaces)
                )
        return living


async def _of_service(dnc: Dnc) -> list[NC]:
    allocator = HttpAllocator(dnc.url, dnc.token, dnc.cluster, dnc.ca_file)
    try:
        return await allocator.ncs(dnc.cluster)
    except DncError as problem:
        raise CannotLook(f"DNC at {dnc.url}: {problem}") from problem
    finally:
        await allocator.close()


class _Memory(msgspec.Struct):
    ips: tuple[IP, ...]


def journals(states: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, Path]]:
    """The journals below the folders that were named; the folder's name is no node's name."""
    for node, folder in states:
        found = [path for pattern in JOURNALS for path in sorted(folder.glob(pattern)) if path.is_file()]
        if not found:
            raise CannotLook(f"there is no journal in {folder}, nor in the folders below it")
        for path in found:
            yield node, path


def _home(ncs: Iterable[str], homes: Mapping[str, str]) -> str:
    """The node whose NNC has one of these network containers."""
    return next((homes[nc] for nc in ncs if nc in homes), "")


def _ncs(loaded: Loaded) -> list[str]:
    return [nc.id for nc in loaded.containers] + [ip.nc for ip in loaded.pool]


def _pool(loaded: Loaded) -> tuple[IP, ...]:
    """What was assigned in another boot is void."""
    return tuple(loaded.pool if loaded.boot == this_boot() else without_assignments(loaded.pool, 0.0))


def config_records(nncs: Iterable[dict[str, Any]], nodes: Iterable[Node]) -> tuple[NodeConfig, ...]:
    told = {node.metadata.name: (node.metadata.annotations or {}).get(MAX_IPS, "") for node in nodes}
    return tuple(_config(nnc, told) for nnc in nncs)


def _config(plain: dict[str, Any], told: Mapping[str, str]) -> NodeConfig:
    nnc = from_builtins(NodeNetworkConfig, plain)
    name, spec, status = nnc.metadata.name, nnc.spec, nnc.status
    return NodeConfig(
        node=name,
        containers=tuple(
            _container(nc, name) for nc in (status.network_containers if status else None) or ()
        ),
        targets=dict((spec.secondary_ips if spec else None) or {}),
        released=tuple((spec.released_ips if spec else None) or ()),
        maximum=_maximum(told.get(name, ""), (nnc.metadata.annotations or {}).get(SCALER, "")),
        writers=tuple(_writers(nnc.metadata.managed_fields or [])),
    )


def _maximum(annotation: str, scaler: str) -> int:
    if annotation.isdecimal():
        return int(annotation)
    with suppress(msgspec.MsgspecError):
        found = msgspec.json.decode(scaler or "{}").get("maxIPCount")
        return int(found) if isinstance(found, int) else DEFAULT_MAXIMUM
    return DEFAULT_MAXIMUM


def _container(nc: NetworkContainer, node: str) -> Container:
    return Container(
        id=nc.id,
        node=node,
        subnet=nc.subnet_name,
        network=nc.vnet_id,
        cidr=nc.subnet_address_space or nc.subnet_address_space_v6,
        primary=nc.primary_ip or nc.primary_ip_v6,
        version=nc.version or 0,
        secondary=tuple(Grant(each.id, each.address) for each in nc.secondary_ips or ()),
    )


def dnc_container(nc: NC) -> Container:
    grants = tuple(Grant(each.id, each.address) for each in nc.secondary)
    leaving = tuple(Grant(each.id, each.address) for each in nc.leaving)
    where = nc.subnet.name, nc.subnet.network, nc.cidr
    return Container(nc.id, nc.node, *where, nc.primary, nc.version, grants, leaving)


def _writers(managed: Iterable[dict[str, Any]]) -> Iterator[Writer]:
    for entry in managed:
        fields = tuple(
            f"{part.removeprefix('f:')}.{name.removeprefix('f:')}"
            for part, inside in (entry.get("fieldsV1") or {}).items()
            for name in inside
            if part in ("f:spec", "f:status") and name.startswith("f:")
        )
        yield Writer(entry.get("manager", ""), entry.get("subresource", ""), fields)


def pod_record(pod: Pod) -> PodRecord:
    metadata, status = pod.metadata, pod.status
    return PodRecord(
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        node=pod.spec.node_name,
        addresses=tuple(each.ip for each in status.pod_ips or ())
        or ((status.pod_ip,) if status.pod_ip else ()),
        finished=status.phase in ("Succeeded", "Failed"),
        terminating=metadata.deletion_timestamp is not None,
    )


def fabrics(objects: Iterable[dict[str, Any]]) -> Iterator[NodeFabric]:
    for plain in objects:
        if plain["kind"] != NodeNetwork.resource.kind:
            continue
        found = from_builtins(NodeNetwork, plain)
        status = found.status
        conditions = (status.conditions if status else None) or []
        yield NodeFabric(
            node=found.spec.node_name,
            cluster_network=found.spec.cluster_network_name,
            ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
            devices=tuple(each.name for each in (status.devices if status else None) or ()),
            needs_tunnel="vxLanOptions" in (plain["spec"].get("options") or {}),
            tunnel_end=str(status.vtep_address or "") if status else "",
        )


def satisfied(nodes: Iterable[Node]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        for key, value in (node.metadata.labels or {}).items():
            if value == "true" and re.fullmatch(rf"{re.escape(_LABEL)}[^/]+", key):
                yield node.metadata.name, key.removeprefix(_LABEL)


_OURS: dict[str, type[Object]] = {
    kind.resource.kind: kind for kind in (NodeNetworkConfig, ClusterSubnet, NodeNetwork)
}


def round_trip(plain: dict[str, Any]) -> RoundTrip:
    metadata = plain["metadata"]
    where = f"{plain['kind']} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " ")
    return RoundTrip(where, plain, to_builtins(from_builtins(_OURS[plain["kind"]], plain)))

"""Azure CNS's HTTP contract, so that azure-ipam binaries work against this agent unchanged.

Off unless asked for (`--azure-api`), and only on loopback: any process in the host's network may call it.
Errors are HTTP 200 with a `ReturnCode` other than 0. The words and their spellings are the contract's.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from subnetes.cns import listener
from subnetes.cns.containers import Container, by_id, serving
from subnetes.cns.errors import CnsError, JournalError
from subnetes.cns.ipam import Assigned
from subnetes.cns.metrics import Metrics
from subnetes.cns.verbs import Attachments
from subnetes.ipam.pool import IP, Holder, Pool

SUCCESS, INVALID_PARAMETER, ADDRESS_UNAVAILABLE, INVALID_REQUEST = 0, 2, 15, 23
FAILED_TO_ALLOCATE, EMPTY_CONTEXT, UNSUPPORTED_CONTEXT, UNEXPECTED = 32, 33, 34, 99
DEFAULT_IFNAME = "eth0"
_MOST_BODY = 64 << 10

Document = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Asked = TypeVar("Asked")


class Pools(Attachments, Protocol):
    """What of the pool (`Ipam`) is needed here."""

    @property
    def pool(self) -> Pool: ...
    @property
    def containers(self) -> tuple[Container, ...]: ...


class Refused(Exception):
    """An error of the contract: its code and its message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Context(msgspec.Struct):
    """The pod, for people; nothing is released by it."""

    name: str = msgspec.field(name="podName", default="")
    namespace: str = msgspec.field(name="podNamespace", default="")


class Plural(msgspec.Struct):
    desired: list[str] | None = msgspec.field(name="desiredIPAddresses", default=None)
    interface_id: str = msgspec.field(name="podInterfaceID", default="")
    container_id: str = msgspec.field(name="infraContainerID", default="")
    context: msgspec.Raw = msgspec.field(name="orchestratorContext", default=msgspec.Raw())
    ifname: str = ""


class Singular(msgspec.Struct):
    desired_one: str = msgspec.field(name="DesiredIPAddress", default="")
    interface_id: str = msgspec.field(name="PodInterfaceID", default="")
    container_id: str = msgspec.field(name="InfraContainerID", default="")
    context: msgspec.Raw = msgspec.field(name="OrchestratorContext", default=msgspec.Raw())
    ifname: str = msgspec.field(name="Ifname", default="")

    @property
    def desired(self) -> list[str]:
        return [self.desired_one] if self.desired_one else []


class Filter(msgspec.Struct):
    states: list[str] = msgspec.field(name="IPConfigStateFilter", default_factory=list)


@asynccontextmanager
async def serve(ipam: Pools, address: str, metrics: Metrics | None = None) -> AsyncIterator[int]:
    host, port = listener.parse(address)
    if not listener.is_loopback(host):
        raise listener.BadAddress(f"{address}: Azure's contract has no passwords: it is for loopback only")
    async with listener.listening(application(ipam, metrics or Metrics()), host, port) as chosen:
        yield chosen


def application(ipam: Pools, metrics: Metrics) -> web.Application:
    contract = Contract(ipam)
    made = web.Application(client_max_size=_MOST_BODY, middlewares=[_measured(metrics)])
    made.add_routes(
        [
            web.post("/network/requestipconfigs", contract.request_all),
            web.post("/network/releaseipconfigs", contract.release_all),
            web.post("/network/requestipconfig", contract.request_one),
            web.post("/network/releaseipconfig", contract.release_one),
            *debug_routes(ipam),
        ]
    )
    return made


def debug_routes(ipam: Pools) -> list[web.RouteDef]:
    debug = Debug(ipam)
    return [
        web.post("/debug/ipaddresses", debug.addresses),
        web.get("/debug/podcontext", debug.pod_context),
        web.get("/debug/restdata", debug.rest_data),
    ]


class Contract:
    def __init__(self, ipam: Pools) -> None:
        self._ipam = ipam

    async def request_all(self, request: web.Request) -> web.Response:
        try:
            infos = await self._assign(await _body(request, Plural))
        except Refused as problem:
            return _answer({"podIPInfo": [], "response": _said(problem)}, problem.code)
        return _answer({"podIPInfo": infos, "response": _said(None)})

    async def request_one(self, request: web.Request) -> web.Response:
        """The legacy route can say one address, so the node must draw from one network container."""
        try:
            asked = await _body(request, Singular)
            if len(serving(self._ipam.containers)) > 1:
                raise Refused(INVALID_REQUEST, "a pod gets several IPs here: use /network/requestipconfigs")
            (info,) = await self._assign(asked)
        except Refused as problem:
            return _answer({"PodIpInfo": {}, "Response": _said(problem)}, problem.code)
        return _answer({"PodIpInfo": info, "Response": _said(None)})

    async def release_all(self, request: web.Request) -> web.Response:
        return await self._release(request, Plural)

    async def release_one(self, request: web.Request) -> web.Response:
        return await self._release(request, Singular)

    async def _assign(self, asked: Plural | Singular) -> list[Document]:
        holder = _holder(asked)
        held = {ip.address for ip in self._ipam.pool.by_key(holder.key)}
        if asked.desired and set(asked.desired) != held:
            raise Refused(ADDRESS_UNAVAILABLE, f"{', '.join(asked.desired)} cannot be had: ask for any IP")
        try:
            assigned = await self._ipam.add(holder)
        except CnsError as problem:
            raise Refused(FAILED_TO_ALLOCATE, str(problem)) from None
        known = by_id(self._ipam.containers)
        return [_info(each, known.get(each.nc_id)) for each in assigned]

    async def _release(self, request: web.Request, kind: type[Plural] | type[Singular]) -> web.Response:
        """By container id and interface, never by the pod's name; of the unknown it succeeds."""
        try:
            holder = _holder(await _body(request, kind))
            self._ipam.delete(*holder.key)
        except Refused as problem:
            return _answer(_said(problem), problem.code)
        except JournalError as problem:
            return _answer(_said(Refused(UNEXPECTED, str(problem))), UNEXPECTED)
        return _answer(_said(None))


class Debug:
    """The pool as Azure's own tools read it."""

    def __init__(self, ipam: Pools) -> None:
        self._ipam = ipam

    async def addresses(self, request: web.Request) -> web.Response:
        try:
            wanted = set((await _body(request, Filter)).states)
        except Refused as problem:
            return _answer({"IPConfigurationStatus": [], "Response": _said(problem)}, problem.code)
        shown = [_status(ip) for ip in self._ipam.pool if not wanted or ip.state.value in wanted]
        return _answer({"IPConfigurationStatus": shown, "Response": _said(None)})

    async def pod_context(self, _: web.Request) -> web.Response:
        held = {f"{ip.holder.container_id}:{ip.holder.ifname}": ip.id for ip in self._ipam.pool if ip.holder}
        return _answer({"PodContext": held, "Response": _said(None)})

    async def rest_data(self, _: web.Request) -> web.Response:
        ips = {ip.id: _status(ip) for ip in self._ipam.pool}
        return _answer({"PodIPConfigState": ips, "Response": _said(None)})


async def _body(request: web.Request, kind: type[Asked]) -> Asked:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise Refused(INVALID_REQUEST, f"the request cannot be read: {problem}") from None


def _holder(asked: Plural | Singular) -> Holder:
    """azure-ipam sends the container id as both ids and records no network namespace."""
    container_id = asked.container_id or asked.interface_id
    if not container_id:
        raise Refused(INVALID_PARAMETER, "infraContainerID is empty: an IP is held under a container's id")
    if bytes(asked.context) in (b"", b"null"):
        raise Refused(EMPTY_CONTEXT, "orchestratorContext is empty: it names the pod")
    try:
        pod = msgspec.json.decode(asked.context, type=Context)
    except msgspec.MsgspecError as problem:
        raise Refused(UNSUPPORTED_CONTEXT, f"orchestratorContext cannot be read: {problem}") from None
    return Holder(
        container_id=container_id,
        ifname=asked.ifname or DEFAULT_IFNAME,
        pod_namespace=pod.namespace,
        pod_name=pod.name,
    )


def _info(assigned: Assigned, nc: Container | None) -> Document:
    primary, cidr = (nc.primary, nc.cidr) if nc else ("", "")
    subnet = {"IPAddress": primary, "PrefixLength": assigned.prefix_length}
    is_v6 = assigned.family == 6
    return {
        "PodIPConfig": {"IPAddress": assigned.address, "PrefixLength": assigned.prefix_length},
        "NetworkContainerPrimaryIPConfig": {
            "IPSubnet": subnet,
            "IPSubnetV6": subnet if is_v6 else {"IPAddress": "", "PrefixLength": 0},
            "DNSServers": None,
            "GatewayIPAddress": assigned.gateway,
            "GatewayIPv6Address": assigned.gateway if is_v6 else "",
        },
        "HostPrimaryIPInfo": {"Gateway": assigned.gateway, "PrimaryIP": primary, "Subnet": cidr},
        "NICType": "InfraNIC",
        "MacAddress": "",
        "InterfaceName": "",
        "SkipDefaultRoutes": False,
        "Routes": None,
        "NetworkContainerID": assigned.nc_id,
    }


def _status(ip: IP) -> Document:
    return {
        "ID": ip.id,
        "IPAddress": ip.address,
        "NCID": ip.nc,
        "PodInfo": _pod(ip.holder) if ip.holder else None,
        "LastStateTransition": datetime.fromtimestamp(ip.since, UTC).isoformat().replace("+00:00", "Z"),
        "state": ip.state.value,
    }


def _pod(holder: Holder) -> Document:
    return {
        "PodName": holder.pod_name,
        "PodNamespace": holder.pod_namespace,
        "PodInfraContainerID": holder.container_id,
        "PodInterfaceID": holder.container_id,
    }


def _said(problem: Refused | None) -> Document:
    return {"ReturnCode": problem.code if problem else SUCCESS, "Message": str(problem or "")}


def _answer(document: Document, code: int = SUCCESS) -> web.Response:
    body = msgspec.json.encode(document)
    return web.Response(body=body, content_type="application/json", headers={"cns_return_code": str(code)})


def _measured(metrics: Metrics) -> Any:
    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        response = await handler(request)
        route = request.match_info.route.resource
        labels = (
            route.canonical if route else "",
            request.method,
            response.headers.get("cns_return_code", ""),
        )
        metrics.request_seconds.labels(*labels).observe(time.perf_counter() - began)
        return response

    return measure

"""An `Allocator` in another process: every call is one request, and every error is the one raised there.

A request whose connection was lost is sent once more: every call can be repeated. After that it is for the
caller's own retries, and `Unavailable`.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from subnetes.dnc import routes
from subnetes.dnc.errors import BY_REASON, BadRequest, DncError, Unavailable
from subnetes.dnc.routes import NO_NETWORK, ROUTES, ErrorBody, Freed
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

_AT_A_TIME = 200  # NCs adopted in one request
_EXCERPT = 200  # characters of an answer that is none of DNC's


class HttpAllocator:
    """One cluster's way to DNC; the token must be that cluster's."""

    def __init__(
        self, url: str, token: str, cluster: str, ca_file: Path | None = None, timeout: float = 30.0
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._cluster = cluster
        self._context = ssl.create_default_context(cafile=ca_file) if url.startswith("https:") else None
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def ensure_subnet(self, declaration: Declaration) -> Utilization:
        body = routes.SubnetBody(declaration.cidr, declaration.gateway, declaration.exclude)
        answer: Utilization = await self._call("ensureSubnet", _subnet(declaration.key), body)
        return answer

    async def delete_subnet(self, key: SubnetKey) -> None:
        await self._call("deleteSubnet", _subnet(key))

    async def ensure_nc(self, cluster: str, node: str, subnet: SubnetKey) -> NC:
        answer: NC = await self._call("ensureNC", {"cluster": cluster}, routes.NCBody(node, subnet))
        return answer

    async def set_secondary(
        self, cluster: str, nc_id: str, fence: Fence, target: int, released: Sequence[str]
    ) -> SetResult:
        body = routes.SecondaryBody(fence, target, tuple(released))
        answer: SetResult = await self._call("setSecondary", {"cluster": cluster, "nc": nc_id}, body)
        return answer

    async def confirm(self, cluster: str, nc_id: str, ids: Sequence[str]) -> int:
        body = routes.ConfirmedBody(tuple(ids))
        answer: Freed = await self._call("confirm", {"cluster": cluster, "nc": nc_id}, body)
        return answer.freed

    async def release_wait(self, cluster: str, node: str, subnet: SubnetKey) -> None:
        await self._call("releaseWait", {"cluster": cluster, "node": node, **_subnet(subnet)})

    async def adopt(self, cluster: str, ncs: Sequence[AdoptedNC]) -> tuple[Conflict, ...]:
        """Many NCs are several requests, and each of them is one transaction."""
        found: list[Conflict] = []
        for start in range(0, len(ncs), _AT_A_TIME):
            body = routes.AdoptionBody(tuple(ncs[start : start + _AT_A_TIME]))
            found += await self._call("adopt", {"cluster": cluster}, body)
        return tuple(found)

    async def delete_nc(self, cluster: str, nc_id: str) -> int:
        answer: Freed = await self._call("deleteNC", {"cluster": cluster, "nc": nc_id})
        return answer.freed

    async def nc(self, cluster: str, nc_id: str) -> NC:
        answer: NC = await self._call("nc", {"cluster": cluster, "nc": nc_id})
        return answer

    async def ncs(self, cluster: str, node: str | None = None) -> list[NC]:
        query = {} if node is None else {"node": node}
        answer: list[NC] = await self._call("ncs", {"cluster": cluster}, query=query)
        return answer

    async def waiting(self, key: SubnetKey) -> list[Waiter]:
        answer: list[Waiter] = await self._call("waiting", {"cluster": self._cluster, **_subnet(key)})
        return answer

    async def utilization(self, key: SubnetKey) -> Utilization:
        query = {"family": str(key.family)}
        answer: Utilization = await self._call("utilization", _subnet(key), query=query)
        return answer

    async def subnets(self) -> list[Subnet]:
        answer: list[Subnet] = await self._call("subnets", {})
        return answer

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(
        self, operation: str, names: dict[str, str], body: object = None, query: dict[str, str] | None = None
    ) -> Any:
        route = ROUTES[operation]
        path = route.path.format(**{name: quote(text, safe="") for name, text in names.items()})
        content = None if body is None else _encoded(body)
        status, answer = await self._exchange(route.method, path, content, query or {})
        if status != 200:
            raise _error(status, answer)
        try:
            return msgspec.json.decode(answer, type=route.answer)
        except msgspec.MsgspecError as problem:
            raise Unavailable(f"DNC at {self._url} gave an answer that is none: {problem}") from problem

    async def _exchange(
        self, method: str, path: str, content: bytes | None, query: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            return await self._once(method, path, content, query)
        except TimeoutError as problem:  # who did not answer for so long is not asked twice in one call
            raise self._away(problem) from problem
        except (aiohttp.ClientError, OSError):
            pass  # most often a connection that the server had closed meanwhile
        try:
            return await self._once(method, path, content, query)
        except (aiohttp.ClientError, OSError) as problem:
            raise self._away(problem) from problem

    def _away(self, problem: Exception) -> Unavailable:
        return Unavailable(f"DNC at {self._url} does not answer: {str(problem) or type(problem).__name__}")

    async def _once(
        self, method: str, path: str, content: bytes | None, query: dict[str, str]
    ) -> tuple[int, bytes]:
        url = URL(self._url + path, encoded=True).update_query(query)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        session = self._opened()
        async with session.request(method, url, data=content, headers=headers) as response:
            return response.status, await response.read()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context if self._context else True)
            self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout)
        return self._session


def _subnet(key: SubnetKey) -> dict[str, str]:
    return {"network": key.network or NO_NETWORK, "subnet": key.name, "family": str(key.family)}


def _encoded(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as problem:
        raise BadRequest(f"not to be written as JSON: {problem}") from problem


def _error(status: int, answer: bytes) -> DncError:
    try:
        body = msgspec.json.decode(answer, type=ErrorBody)
    except msgspec.MsgspecError:
        excerpt = " ".join(answer.decode(errors="replace").split())[:_EXCERPT]
        return Unavailable(f"HTTP {status}: {excerpt or 'no explanation'}")
    return BY_REASON.get(body.reason, Unavailable)(body.message, addresses=body.addresses)

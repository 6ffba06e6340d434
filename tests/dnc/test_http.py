"""DNC over HTTP: the same answers and errors as in process, tokens, TLS, the OpenAPI document."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from subnetes.dnc.errors import (
    BadRequest,
    NCUnknown,
    NotYours,
    StaleReading,
    SubnetFull,
    SubnetInUse,
    SubnetInvalid,
    SubnetUnknown,
    Unauthorized,
    Unavailable,
)
from subnetes.dnc.http_client import HttpAllocator
from subnetes.dnc.http_server import application, serving
from subnetes.dnc.openapi import document
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.dnc.tokens import InvalidTokens, Tokens, read_tokens
from subnetes.dnc.types import AdoptedNC, Declaration, Fence, SecondaryIP, SubnetKey

BLUE, GREEN = "blue-token-0123456789", "green-token-0123456789"
TOKENS = Tokens({BLUE: "blue", GREEN: "green"})
A = SubnetKey("", "a", 4)
# An Azure resource id, slashes and all.
ARM = SubnetKey("/subscriptions/x/virtualNetworks/v", "a.b", 4)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    allocator = SqlAllocator(await open_sqlite())
    async with serving(allocator, TOKENS, "127.0.0.1", 0) as listening:
        yield listening
    await allocator.close()


@pytest.fixture
async def blue(url: str) -> AsyncIterator[HttpAllocator]:
    client = HttpAllocator(url, BLUE, "blue")
    yield client
    await client.close()


@pytest.fixture
async def green(url: str) -> AsyncIterator[HttpAllocator]:
    client = HttpAllocator(url, GREEN, "green")
    yield client
    await client.close()


@pytest.mark.parametrize("key", [A, ARM])
async def test_every_call_goes_through(blue: HttpAllocator, key: SubnetKey) -> None:
    assert (await blue.ensure_subnet(Declaration(key, "10.0.0.0/29", "10.0.0.1", ("10.0.0.6",)))).free == 4
    nc = await blue.ensure_nc("blue", "n", key)
    assert await blue.nc("blue", nc.id) == nc
    result = await blue.set_secondary("blue", nc.id, Fence("u", 5), 9, [])
    assert (len(result.nc.secondary), result.nc.waiting) == (3, 6)
    assert await blue.ncs("blue") == await blue.ncs("blue", "n") == [result.nc]
    assert [waiter.nc for waiter in await blue.waiting(key)] == [nc.id]
    with pytest.raises(SubnetFull, match="node m"):
        await blue.ensure_nc("blue", "m", key)
    await blue.release_wait("blue", "m", key)
    assert [waiter.node for waiter in await blue.waiting(key)] == ["n"]
    going = result.nc.secondary[0]
    result = await blue.set_secondary("blue", nc.id, Fence("u", 6), 2, [going.id])
    assert result.nc.leaving == (going,)
    assert (await blue.utilization(key)).reserved == 4
    assert [await blue.confirm("blue", nc.id, [going.id]) for _ in range(2)] == [1, 0]
    assert (await blue.utilization(key)).reserved == 3
    assert [subnet.key for subnet in await blue.subnets()] == [key]
    assert await blue.delete_nc("blue", nc.id) == 3
    await blue.delete_subnet(key)
    assert await blue.subnets() == []


async def test_errors_are_the_ones_raised_in_process(blue: HttpAllocator) -> None:
    with pytest.raises(SubnetUnknown):
        await blue.utilization(A)
    with pytest.raises(SubnetInvalid, match="gateway"):
        await blue.ensure_subnet(Declaration(A, "10.0.0.0/28", "10.9.9.9"))
    await blue.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    nc = await blue.ensure_nc("blue", "n", A)
    await blue.set_secondary("blue", nc.id, Fence("u", 5), 9, [])
    with pytest.raises(StaleReading):
        await blue.set_secondary("blue", nc.id, Fence("u", 4), 9, [])
    with pytest.raises(SubnetInUse) as refused:
        await blue.ensure_subnet(Declaration(A, "10.0.0.0/29"))
    assert "10.0.0.8" in refused.value.addresses
    with pytest.raises(BadRequest):
        await blue.set_secondary("blue", nc.id, Fence("u", 6), -1, [])


async def test_adoption_and_its_conflicts(blue: HttpAllocator, green: HttpAllocator) -> None:
    ips = (SecondaryIP("i", "10.0.0.5"),)
    shown = AdoptedNC("one", "n", A, "10.0.0.0/28", "10.0.0.1", "10.0.0.4", 3, ips)
    assert await blue.adopt("blue", [shown]) == ()
    conflicts = await green.adopt("green", [AdoptedNC("two", "n", A, "", "", "10.0.0.6", 1, ips)])
    assert [(each.address, each.owner_nc) for each in conflicts] == [("10.0.0.5", None)]
    assert (await blue.nc("blue", "one")).secondary == ips


async def test_an_ipv6_subnet_of_any_size_has_an_exact_capacity(blue: HttpAllocator, url: str) -> None:
    await blue.ensure_subnet(Declaration(SubnetKey("net", "six", 6), "fd00::/16"))
    assert (await blue.utilization(SubnetKey("net", "six", 6))).capacity == 2**112 - 2
    status, body = await get(url, "/networks/net/subnets/six/utilization")
    assert (status, body["capacity"]) == (200, 2**112 - 2)


async def test_a_cluster_sees_only_its_own(blue: HttpAllocator, green: HttpAllocator) -> None:
    await blue.ensure_subnet(Declaration(A, "10.0.0.0/29"))
    mine, theirs = await blue.ensure_nc("blue", "n", A), await green.ensure_nc("green", "n", A)
    await green.set_secondary("green", theirs.id, Fence("u", 1), 99, [])
    for attempt in (
        lambda: blue.nc("blue", theirs.id),
        lambda: blue.set_secondary("blue", theirs.id, Fence("u", 2), 0, []),
    ):
        with pytest.raises(NCUnknown):
            await attempt()
    assert await blue.delete_nc("blue", theirs.id) == 0
    for forbidden in (
        lambda: blue.ncs("green"),
        lambda: blue.nc("green", theirs.id),
        lambda: blue.delete_nc("green", theirs.id),
        lambda: blue.confirm("green", theirs.id, []),
        lambda: blue.ensure_nc("green", "x", A),
        lambda: blue.adopt("green", [AdoptedNC("x", "n", A, "10.0.0.0/29", "", "", 1)]),
        lambda: blue.release_wait("green", "n", A),
    ):
        with pytest.raises(NotYours, match="cluster blue"):
            await forbidden()
    assert [nc.id for nc in await blue.ncs("blue")] == [mine.id]
    assert await blue.waiting(A) == []
    assert len(await green.waiting(A)) == 1


@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {BLUE}", "Bearer", f"Bearer {BLUE}x"])
@pytest.mark.parametrize("path", ["/subnets", "/clusters/blue/ncs", "/networks/-/subnets/a/utilization"])
async def test_nothing_without_a_token(url: str, path: str, header: str | None) -> None:
    status, body = await get(url, path, header)
    assert (status, body["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/networks/net/subnets/a%00b/utilization", 400),
        ("/networks/net/subnets/a%20b/utilization", 400),
        ("/networks/n%3Cscript%3E/subnets/a/utilization", 400),
        ("/networks//subnets/a/utilization", 400),
        ("/networks/net/subnets//utilization", 400),
        (f"/networks/net/subnets/{'a' * 600}/utilization", 400),
        ("/networks/net/subnets/a/utilization?family=5", 400),
        ("/networks/net/subnets/a/utilization?family=x", 400),
        ("/networks/net/subnets/a/utilization", 404),
        ("/nothing/here", 404),
    ],
)
async def test_bad_ids_are_400_and_unknown_ones_404(url: str, path: str, status: int) -> None:
    got, body = await get(url, path)
    assert got == status
    assert body["message"]


async def test_the_utilization_is_as_azure_wrote_it_down(url: str, blue: HttpAllocator) -> None:
    await blue.ensure_subnet(Declaration(SubnetKey("net", "a", 4), "10.0.0.0/24"))
    await blue.ensure_nc("blue", "n", SubnetKey("net", "a", 4))
    status, body = await get(url, "/networks/net/subnets/a/utilization")
    assert status == 200
    assert (body["capacity"], body["reserved"]) == (253, 1)
    assert isinstance(body["timestamp"], int)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"cidr": 5}', b"\xff", b'{"cidr": "\\ud800"}'])
async def test_a_bad_body_is_a_clear_400(url: str, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {BLUE}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.put(f"{url}/networks/-/subnets/a/families/4", data=body) as response,
    ):
        assert response.status in (400, 422)
        assert (await response.json())["message"]


async def test_a_service_that_is_away_is_unavailable(url: str) -> None:
    client = HttpAllocator("http://127.0.0.1:1", BLUE, "blue")
    with pytest.raises(Unavailable, match="does not answer"):
        await client.subnets()
    await client.close()
    stranger = HttpAllocator(url, "nobody's", "blue")
    with pytest.raises(Unauthorized):
        await stranger.subnets()
    await stranger.close()


async def get(url: str, path: str, header: str | None = f"Bearer {BLUE}") -> tuple[int, dict[str, Any]]:
    headers = {} if header is None else {"Authorization": header}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(URL(url + path, encoded=True)) as response,
    ):
        return response.status, await response.json()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]"])
async def test_a_service_that_hangs_or_breaks_off_is_unavailable(answer: bytes) -> None:
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if not answer:
            await done.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpAllocator(f"http://127.0.0.1:{port}", BLUE, "blue", timeout=0.2 if not answer else 30.0)
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.subnets()
    finally:
        done.set()
        await client.close()
        server.close()
        await server.wait_closed()


async def test_the_openapi_document_is_served_without_a_token(url: str) -> None:
    status, body = await get(url, "/openapi.json", None)
    assert (status, body["openapi"]) == (200, "3.1.0")
    assert (await get(url, "/healthz", None))[0] == 200


async def test_the_openapi_document_is_whole() -> None:
    """Every reference leads somewhere, every path parameter is described, every route is in it."""
    text = document("1.0")
    schemas = text["components"]["schemas"]
    references = re.findall(r"'\$ref': '#/components/schemas/(\w+)'", str(text))
    assert set(references) == set(schemas)
    operations = [
        (method.upper(), path, content)
        for path, methods in text["paths"].items()
        for method, content in methods.items()
    ]
    for _, path, content in operations:
        described = {each["name"] for each in content["parameters"] if each["in"] == "path"}
        assert described == set(re.findall(r"{(\w+)}", path))
        assert all(each["required"] for each in content["parameters"] if each["in"] == "path")
        assert {"200", "400", "401", "403", "503"} <= set(content["responses"])
        assert all("description" in answer for answer in content["responses"].values())
    ids = [content["operationId"] for _, _, content in operations]
    assert len(ids) == len(set(ids))
    app = application(SqlAllocator(await open_sqlite()), TOKENS)
    served = {
        (route.method, re.sub(r":\[[^}]*}", "}", route.resource.canonical if route.resource else ""))
        for route in app.router.routes()
        if route.method != "HEAD"
    }
    assert {(method, path) for method, path, _ in operations} == served - {
        ("GET", "/openapi.json"),
        ("GET", "/healthz"),
    }


def test_tokens_are_read_and_mistakes_in_them_named(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n\n{BLUE}, blue\n{GREEN},green\nanother-token-012345,green\n")
    tokens = read_tokens(file)
    assert [tokens.cluster_of(each) for each in (BLUE, GREEN, "another-token-012345", "", "x")] == [
        "blue",
        "green",
        "green",
        None,
        None,
    ]
    for text, why in (
        ("", "no token"),
        ("short,blue", "line 1"),
        (f"{BLUE},", "line 1"),
        (f"{BLUE}", "line 1"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidTokens, match=why):
            read_tokens(file)
    file.write_text(f"{BLUE},blue\n{BLUE},green\n")
    with pytest.raises(InvalidTokens, match="line 2") as refused:
        read_tokens(file)
    assert BLUE not in str(refused.value)


def test_tls_of_the_client_checks_names_and_chains() -> None:
    client = HttpAllocator("https://127.0.0.1:1", BLUE, "blue")
    assert client._context is not None
    assert client._context.verify_mode == ssl.CERT_REQUIRED
    assert client._context.check_hostname

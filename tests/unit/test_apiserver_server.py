"""The server as a whole, in this process: starting, stopping, finding its data again, failing politely."""

import asyncio
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from subnetes.apiserver.objects import Objects
from subnetes.apiserver.server import Config, Server
from subnetes.apiserver.store import Busy, Store
from tests.harness.widgets import GROUP, widget, widget_crd

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = f"/apis/{GROUP}/v1/namespaces/default/widgets"
PATIENCE = 20.0


@asynccontextmanager
async def client(server: Server, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    headers = {"Authorization": f"Bearer {token or server.token}"}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(server.url, headers=headers, connector=connector) as session:
        yield session


async def ask(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    async with session.request(method, path, json=body) as response:
        return response.status, orjson.loads(await response.read())


async def until_gone(session: aiohttp.ClientSession, path: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await ask(session, "GET", path))[0] != 404:
            await asyncio.sleep(0.01)


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name} | metadata,
        "data": {"a": "1"},
    }


async def test_a_second_start_finds_everything_again(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        code, made = await ask(session, "POST", CONFIG_MAPS, config_map("c"))
        token, authority = server.token, server.ca_file.read_bytes()
        assert code == 201
    async with Server(Config(data=tmp_path)) as server, client(server, token) as session:
        assert await ask(session, "GET", f"{CONFIG_MAPS}/c") == (200, made)
        assert server.ca_file.read_bytes() == authority


async def test_a_server_in_memory_leaves_nothing_behind() -> None:
    async with Server(Config()) as server, client(server) as session:
        folder = server.ca_file.parent
        assert (await ask(session, "GET", "/api/v1/namespaces/kube-system"))[0] == 200
    assert not folder.exists()


async def test_a_second_server_on_the_same_folder_says_so(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path)):
        with pytest.raises(Busy, match="another process"):
            await Server(Config(data=tmp_path)).__aenter__()
    async with Server(Config(data=tmp_path)):
        pass


async def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path)) as server:
        for path in (
            tmp_path / "ca.key",
            tmp_path / "server.key",
            tmp_path / "tokens.csv",
            server.kubeconfig,
        ):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def test_without_its_token_nobody_enters(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path)) as server, client(server, "guess") as session:
        code, status = await ask(session, "GET", CONFIG_MAPS)
        assert (code, status["reason"]) == (401, "Unauthorized")
        async with session.get("/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok")


async def test_given_crds_are_installed_and_brought_up_to_date(tmp_path: Path) -> None:
    crd = widget_crd()
    async with Server(Config(data=tmp_path, crds=[crd])) as server, client(server) as session:
        assert (await ask(session, "POST", WIDGETS, widget("w", {"size": 10})))[0] == 201
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["size"]["maximum"] = 4
    async with Server(Config(data=tmp_path, crds=[crd])) as server, client(server) as session:
        assert (await ask(session, "POST", WIDGETS, widget("v", {"size": 5})))[0] == 422
        assert (await ask(session, "GET", f"{WIDGETS}/w"))[1]["spec"]["size"] == 10
    async with Server(Config(data=tmp_path, crds=[crd])) as server, client(server) as session:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{GROUP}"
        assert (await ask(session, "GET", path))[1]["metadata"]["generation"] == 2, "nothing new, no write"


async def test_stopping_ends_open_watches(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        Server(Config(data=tmp_path)) as server,
        client(server) as session,
        session.get(f"{CONFIG_MAPS}?watch=true") as response,
    ):
        assert response.status == 200
        stopping = asyncio.create_task(server.__aexit__())
        assert await response.content.read() == b""
        await stopping


async def test_a_quiet_watch_gets_bookmarks(tmp_path: Path) -> None:
    config = Config(data=tmp_path, bookmark_seconds=0.05)
    async with Server(config) as server, client(server) as session:
        query = "watch=true&allowWatchBookmarks=true&resourceVersion=1"
        async with asyncio.timeout(PATIENCE), session.get(f"{CONFIG_MAPS}?{query}") as response:
            event = orjson.loads(await response.content.readline())
            assert event["type"] == "BOOKMARK"
            assert event["object"]["kind"] == "ConfigMap"
            assert event["object"]["metadata"]["resourceVersion"] == "4", (
                "the four namespaces of every cluster"
            )


async def test_the_past_is_forgotten_in_time(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path, history_seconds=0.05)) as server, client(server) as session:
        await ask(session, "POST", CONFIG_MAPS, config_map("c"))
        async with asyncio.timeout(PATIENCE):
            exact = "resourceVersion=1&resourceVersionMatch=Exact"
            while (answer := await ask(session, "GET", f"{CONFIG_MAPS}?{exact}"))[0] != 410:
                await asyncio.sleep(0.01)
        assert answer[1]["reason"] == "Expired"
        assert (await ask(session, "GET", f"{CONFIG_MAPS}/c"))[0] == 200


async def test_a_bug_of_ours_is_an_internal_error_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        monkeypatch.setattr(Objects, "row", broken)
        code, status = await ask(session, "GET", f"{CONFIG_MAPS}/c")
    assert (code, status["reason"]) == (500, "InternalError")
    assert "secret detail" not in str(status)
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_collection_goes_on_where_a_crash_interrupted_it(tmp_path: Path) -> None:
    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        owner = (await ask(session, "POST", CONFIG_MAPS, config_map("owner")))[1]["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        owned = config_map("owned", ownerReferences=[reference])
        await ask(session, "POST", CONFIG_MAPS, owned)
    store = Store(tmp_path)  # the owner goes, and nobody is there to see it
    row = store.get("configmaps", "default/owner")
    assert row is not None
    store.delete("configmaps", "default/owner", orjson.loads(row.value), row.rv)
    store.close()
    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        await until_gone(session, f"{CONFIG_MAPS}/owned")

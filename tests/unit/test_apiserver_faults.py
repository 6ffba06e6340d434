"""What a client can send, or stop doing, without harming the server or what others asked of it."""

import asyncio
import base64
import ssl
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from subnetes.apiserver import tls
from subnetes.apiserver.admission import DeleteOptions
from subnetes.apiserver.collector import Collector
from subnetes.apiserver.definitions import Endpoint
from subnetes.apiserver.handlers import watches
from subnetes.apiserver.hub import Hub, Interest, Watcher
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.server import Config, Server
from subnetes.apiserver.store import Change, Row, Store
from tests.unit.test_apiserver_server import CONFIG_MAPS, PATIENCE, ask, client, config_map, until_gone

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACES = "/api/v1/namespaces"
THINGS = "/apis/example.io/v1/things"
OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version(name: str = "v1", **more: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": OPEN}
    return {"name": name, "served": True, "storage": name == "v1", "schema": schema} | more


def crd(*versions: dict[str, Any], plural: str = "things", **spec: Any) -> dict[str, Any]:
    names = {"plural": plural, "kind": "Thing"}
    declared = {"group": "example.io", "scope": "Cluster", "names": names, "versions": list(versions)} | spec
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{declared['group']}"},
        "spec": declared,
    }


def thing(name: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": f"example.io/{version}", "kind": "Thing", "metadata": {"name": name}} | more


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(Config(data=tmp_path)) as running:
        yield running


@pytest.fixture
async def session(server: Server) -> AsyncIterator[aiohttp.ClientSession]:
    async with client(server) as opened:
        yield opened


class Gate:
    """A conversion webhook that answers once it is let."""

    def __init__(self) -> None:
        self.asked, self.opened = asyncio.Event(), asyncio.Event()

    async def convert(self, request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())["request"]
        self.asked.set()
        await self.opened.wait()
        converted = [obj | {"apiVersion": review["desiredAPIVersion"]} for obj in review["objects"]]
        result = {"uid": review["uid"], "result": {"status": "Success"}, "convertedObjects": converted}
        return web.json_response({"response": result})


@pytest.fixture
async def gate(session: aiohttp.ClientSession) -> AsyncIterator[Gate]:
    """Things with a second version that only the gate's webhook converts to."""
    gate, app = Gate(), web.Application()
    app.router.add_post("/", gate.convert)
    async with asyncio.timeout(PATIENCE), TestServer(app) as webhook:
        conversion = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": str(webhook.make_url("/"))}},
        }
        definition = crd(version(), version("v2"), scope="Namespaced", conversion=conversion)
        assert (await ask(session, "POST", CRDS, definition))[0] == 201
        yield gate
        gate.opened.set()


BAD_CRDS = {
    "column": crd(version(additionalPrinterColumns=[{"name": "x", "type": "string"}])),
    "schema": crd(version(schema={"openAPIV3Schema": OPEN | {"properties": ["x"]}})),
    "built-in": crd(version(), plural="leases", group="coordination.k8s.io"),
    "webhook": crd(version(), version("v2"), conversion={"strategy": "Webhook"}),
    "authorities": crd(
        version(),
        conversion={
            "strategy": "Webhook",
            "webhook": {"clientConfig": {"url": "https://x", "caBundle": "bm8="}},
        },
    ),
}


@pytest.mark.parametrize("body", BAD_CRDS.values(), ids=BAD_CRDS)
async def test_a_definition_that_cannot_be_served_is_not_stored(
    session: aiohttp.ClientSession, body: dict[str, Any]
) -> None:
    code, status = await ask(session, "POST", CRDS, body)
    assert (code, status["reason"]) == (422, "Invalid"), status
    assert (await ask(session, "GET", f"{CRDS}/{body['metadata']['name']}"))[0] == 404


async def test_a_stored_definition_that_cannot_be_served_does_not_prevent_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, bad = Store(tmp_path), BAD_CRDS["column"]
    store.create("customresourcedefinitions.apiextensions.k8s.io", bad["metadata"]["name"], bad)
    store.close()
    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        assert (await ask(session, "GET", CONFIG_MAPS))[0] == 200
        assert (await ask(session, "GET", THINGS))[0] == 404
    assert "things.example.io cannot be served" in caplog.text


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


IN_DEFAULT = "/api/v1/namespaces/default"
BAD_REQUESTS = {
    "pod spec": (f"{IN_DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": []}),
    "secret": (f"{IN_DEFAULT}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": 1}}),
    "crd spec": (CRDS, crd() | {"spec": "x"}),
    "depth": (f"{IN_DEFAULT}/configmaps", {"metadata": {"name": "c"}, "data": nested(300)}),
}


@pytest.mark.parametrize(("path", "body"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
async def test_a_body_of_another_shape_is_a_bad_request(
    session: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> None:
    code, status = await ask(session, "POST", path, body)
    assert (code, status["reason"]) == (400, "BadRequest"), status


@pytest.mark.parametrize("path", ["/api//x", "/apis/a//b"])
async def test_nothing_is_served_at_a_path_with_empty_parts(
    session: aiohttp.ClientSession, path: str
) -> None:
    assert (await ask(session, "GET", path))[0] == 404


async def test_odd_objects_can_be_deleted(session: aiohttp.ClientSession) -> None:
    await ask(session, "POST", CRDS, crd(version()))
    holding = thing("t", spec={"finalizers": ["its.own/word"]})
    for path, body in ((CONFIG_MAPS, config_map("c") | {"spec": ["x"]}), (THINGS, holding)):
        assert (await ask(session, "POST", path, body))[0] == 201
        code, status = await ask(session, "DELETE", f"{path}/{body['metadata']['name']}")
        assert (code, status.get("status")) == (200, "Success")


async def test_an_odd_pod_from_an_older_release_can_be_deleted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    odd = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": "x"}
    store.create("pods", "default/p", odd)
    store.close()
    async with Server(Config(data=tmp_path)) as server, client(server) as session:
        code, pod = await ask(session, "DELETE", f"{IN_DEFAULT}/pods/p")
        assert (code, pod["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)


async def test_what_cannot_be_collected_does_not_keep_others_from_it(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_empty = Collector._is_empty

    def tripping(self: Collector, container: tuple[str, str], prefix: str = "") -> bool:
        if container[1] == "odd":
            raise ZeroDivisionError
        return is_empty(self, container, prefix)

    monkeypatch.setattr(Collector, "_is_empty", tripping)
    for name in ("odd", "plain"):
        await ask(session, "POST", NAMESPACES, {"metadata": {"name": name}})
        await ask(session, "DELETE", f"{NAMESPACES}/{name}")
    await until_gone(session, f"{NAMESPACES}/plain")
    assert (await ask(session, "GET", f"{NAMESPACES}/odd"))[0] == 200


async def test_dependents_go_with_the_definition_of_their_owner(session: aiohttp.ClientSession) -> None:
    await ask(session, "POST", CRDS, crd(version()))
    for name in ("a", "b"):
        meta = (await ask(session, "POST", THINGS, thing(name)))[1]["metadata"]
        owner = {"apiVersion": "example.io/v1", "kind": "Thing", "name": name, "uid": meta["uid"]}
        await ask(session, "POST", CONFIG_MAPS, config_map(name, ownerReferences=[owner]))
    stranger = {"apiVersion": "unknown.io/v1", "kind": "Stranger", "name": "s", "uid": "u"}
    await ask(session, "POST", CONFIG_MAPS, config_map("other", ownerReferences=[stranger]))
    await ask(session, "DELETE", f"{CRDS}/things.example.io")
    for name in ("a", "b"):
        await until_gone(session, f"{CONFIG_MAPS}/{name}")
    assert (await ask(session, "GET", f"{CONFIG_MAPS}/other"))[0] == 200, "its owner cannot be looked up"


async def test_a_definition_that_is_not_served_takes_its_objects_along(
    session: aiohttp.ClientSession,
) -> None:
    path = f"{CRDS}/things.example.io"
    made = (await ask(session, "POST", CRDS, crd(version())))[1]
    await ask(session, "POST", THINGS, thing("ghost"))
    made["spec"]["versions"][0]["served"] = False
    assert (await ask(session, "PUT", path, made))[0] == 200
    assert (await ask(session, "GET", f"{THINGS}/ghost"))[0] == 404
    await ask(session, "DELETE", path)
    await until_gone(session, path)
    await ask(session, "POST", CRDS, crd(version()))
    assert (await ask(session, "GET", f"{THINGS}/ghost"))[0] == 404


async def test_a_container_is_gone_through_once(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletions: list[str] = []
    delete = Objects.delete
    held = [thing(name, metadata={"name": name, "finalizers": ["x.io/y"]}) for name in "abc"]

    def counting(self: Objects, endpoint: Endpoint, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
        deletions.append(row.key)
        return delete(self, endpoint, row, options)

    await ask(session, "POST", CRDS, crd(version()))
    for each in held:
        assert (await ask(session, "POST", THINGS, each))[0] == 201
    monkeypatch.setattr(Objects, "delete", counting)
    await ask(session, "DELETE", f"{CRDS}/things.example.io")
    for name in "abc":
        async with asyncio.timeout(PATIENCE):
            while (
                "deletionTimestamp"
                not in (left := (await ask(session, "GET", f"{THINGS}/{name}"))[1])["metadata"]
            ):
                await asyncio.sleep(0.01)
        del left["metadata"]["finalizers"]
        assert (await ask(session, "PUT", f"{THINGS}/{name}", left))[0] == 200
    await until_gone(session, f"{CRDS}/things.example.io")
    assert deletions == ["things.example.io", "a", "b", "c"]


async def test_nothing_is_created_in_a_namespace_that_went_meanwhile(
    session: aiohttp.ClientSession, gate: Gate
) -> None:
    path = "/apis/example.io/{}/namespaces/n/things"
    await ask(session, "POST", NAMESPACES, {"metadata": {"name": "n"}})
    late = asyncio.create_task(ask(session, "POST", path.format("v2"), thing("late", "v2")))
    await gate.asked.wait()
    await ask(session, "DELETE", f"{NAMESPACES}/n")
    await until_gone(session, f"{NAMESPACES}/n")
    gate.opened.set()
    assert (await late)[0] == 404
    assert (await ask(session, "GET", f"{path.format('v1')}/late"))[0] == 404


async def test_nothing_is_created_by_a_definition_that_went_meanwhile(
    session: aiohttp.ClientSession, gate: Gate
) -> None:
    path = "/apis/example.io/v2/namespaces/default/things"
    late = asyncio.create_task(ask(session, "POST", path, thing("late", "v2")))
    await gate.asked.wait()
    await ask(session, "DELETE", f"{CRDS}/things.example.io")
    await until_gone(session, f"{CRDS}/things.example.io")
    gate.opened.set()
    assert (await late)[0] == 404


async def test_the_end_of_the_initial_events_is_not_ahead_of_what_was_sent(
    session: aiohttp.ClientSession, gate: Gate
) -> None:
    path = "/apis/example.io/{}/namespaces/default/things"
    first = (await ask(session, "POST", path.format("v1"), thing("a")))[1]["metadata"]["resourceVersion"]
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with session.get(f"{path.format('v2')}?{query}") as response:
        await gate.asked.wait()
        await ask(session, "POST", path.format("v1"), thing("b"))
        gate.opened.set()
        events = [orjson.loads(await response.content.readline()) for _ in range(3)]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK", "ADDED"]
    assert events[1]["object"]["metadata"]["resourceVersion"] == first


async def test_a_version_from_the_future_is_refused(session: aiohttp.ClientSession) -> None:
    code, status = await ask(session, "GET", f"{CONFIG_MAPS}?watch=true&resourceVersion=999999")
    assert (code, status["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    token = base64.urlsafe_b64encode(orjson.dumps({"v": "meta.k8s.io/v1", "rv": 999999, "start": "a"}))
    code, status = await ask(session, "GET", f"{CONFIG_MAPS}?continue={token.decode().rstrip('=')}")
    assert (code, status["reason"]) == (410, "Expired")


def test_a_watcher_that_is_closed_gathers_no_more() -> None:
    hub = Hub(limit=2)
    watcher, closed = hub.join(Interest("pods")), list[bool]()
    watcher.on_close = lambda: closed.append(True)
    for number in range(1, 10):
        pod = {"metadata": {"name": "p", "namespace": "n"}}
        hub.publish(Change(number, "pods", "n/p", orjson.dumps(pod), False, None), pod, None)
    assert (watcher.closed, closed, len(watcher.pending())) == (True, [True], 3)


@pytest.fixture
def watchers(monkeypatch: pytest.MonkeyPatch) -> list[Watcher]:
    """Those that have joined and not left."""
    present: list[Watcher] = []
    join, leave = Hub.join, Hub.leave

    def joining(self: Hub, interest: Interest) -> Watcher:
        present.append(join(self, interest))
        return present[-1]

    def leaving(self: Hub, watcher: Watcher) -> None:
        present.remove(watcher)
        leave(self, watcher)

    monkeypatch.setattr(Hub, "join", joining)
    monkeypatch.setattr(Hub, "leave", leaving)
    return present


async def test_a_client_that_does_not_read_is_dropped_when_its_watch_is_over(
    server: Server, session: aiohttp.ClientSession, watchers: list[Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "DRAIN_SECONDS", 0.05)
    context = ssl.create_default_context(cafile=str(server.ca_file))
    port = int(server.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1024)
    head = f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n"
    writer.write(head.encode())
    assert b"200" in await reader.readline()
    for number in range(25):
        big = config_map(f"big{number}") | {"data": {"a": "x" * 1_000_000}}
        assert (await ask(session, "POST", CONFIG_MAPS, big))[0] == 201
    watchers[0].close()
    async with asyncio.timeout(PATIENCE):
        while watchers:
            await asyncio.sleep(0.01)
    writer.transport.abort()


async def test_the_last_bookmark_is_not_ahead_of_what_was_sent(
    session: aiohttp.ClientSession, gate: Gate, watchers: list[Watcher]
) -> None:
    path = "/apis/example.io/{}/namespaces/default/things"
    start = (await ask(session, "GET", path.format("v1")))[1]["metadata"]["resourceVersion"]
    query = f"watch=true&allowWatchBookmarks=true&resourceVersion={start}"
    async with session.get(f"{path.format('v2')}?{query}") as response:
        first = (await ask(session, "POST", path.format("v1"), thing("a")))[1]["metadata"]
        await gate.asked.wait()
        watchers[0].close()
        await ask(session, "POST", path.format("v1"), thing("b"))
        gate.opened.set()
        events = [orjson.loads(line) for line in (await response.read()).splitlines()]
    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert events[1]["object"]["metadata"]["resourceVersion"] == first["resourceVersion"]


async def test_the_store_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    async with Server(Config(data=tmp_path)):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("objects.db*")}
    assert modes == dict.fromkeys(["objects.db", "objects.db-wal", "objects.db-shm"], 0o600)


def test_the_authority_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write = tls.write_private

    def noting(path: Path, data: bytes) -> None:
        written.append(path.name)
        write(path, data)

    monkeypatch.setattr(tls, "write_private", noting)
    tls.server_context(tmp_path, ["localhost"])
    assert written[:2] == ["ca.key", "ca.crt"]

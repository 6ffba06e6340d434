"""What the client asks of a server, and what it makes of good answers."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import msgspec
import pytest
from aiohttp import web

from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.model import Model, View
from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.codec import Bookmark, Change, Listing, codec_of
from subnetes.kube.errors import ApiError, BadRequest, Gone, Undecodable
from subnetes.kube.lines import Lines
from subnetes.kube.patches import Apply, JsonPatch, MergePatch
from tests.harness.scripted import Handler, answer, failing, hang, scripted, streaming


class Spec(Model):
    size: int = 0


class Widget(Object):
    resource = Resource("example.io", "v1", "Widget", "widgets")

    spec: Spec = msgspec.field(default_factory=Spec)


class NameOnly(View):
    name: str


class Pod(View):
    resource = Resource("", "v1", "Pod", "pods")

    metadata: NameOnly


NODE = Resource("", "v1", "Node", "nodes", namespaced=False)


def widget(name: str, version: str = "1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "resourceVersion": version}
    return {
        "apiVersion": "example.io/v1",
        "kind": "Widget",
        "metadata": metadata,
        "spec": {"size": 3},
        **more,
    }


def page(*names: str, version: str = "9", token: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return {"kind": "WidgetList", "metadata": metadata, "items": [widget(name) for name in names]}


def frame(kind: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


async def events(iterator: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in iterator]


class TestReading:
    async def test_a_typed_kind_is_decoded_and_keeps_what_it_does_not_know(self) -> None:
        async with (
            scripted(answer(200, widget("a", status={"new": 1}))) as server,
            Client(server.credentials()) as client,
        ):
            found = await client.get(Widget, "a", "ns")
        assert (found.metadata.name, found.spec.size, found.unknown) == ("a", 3, {"status": {"new": 1}})
        assert server.requests[0].path_qs == "/apis/example.io/v1/namespaces/ns/widgets/a"

    async def test_a_resource_gives_plain_dictionaries_that_say_what_they_are(self) -> None:
        listed = {"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "n"}}]}
        async with scripted(answer(200, listed)) as server, Client(server.credentials()) as client:
            found = await client.list(NODE)
        assert found == Listing([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}], "5")
        assert server.requests[0].path == "/api/v1/nodes"

    async def test_an_empty_list_may_be_null(self) -> None:
        async with (
            scripted(answer(200, {"metadata": {"resourceVersion": "5"}, "items": None})) as server,
            Client(server.credentials()) as client,
        ):
            assert await client.list(Widget) == Listing([], "5")

    async def test_pages_are_followed_and_selectors_repeated(self) -> None:
        handlers = (answer(200, page("a", "b", token="t&1")), answer(200, page("c", version="9")))
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            found = await client.list(
                Widget, "ns", label_selector="a=b,c in (d)", page_size=2, resource_version="0"
            )
        assert [item.metadata.name for item in found.items] == ["a", "b", "c"]
        first, second = (dict(request.query) for request in server.requests)
        assert first == {
            "labelSelector": "a=b,c in (d)",
            "limit": "2",
            "resourceVersion": "0",
            "resourceVersionMatch": "NotOlderThan",
        }
        assert second == {"labelSelector": "a=b,c in (d)", "limit": "2", "continue": "t&1"}

    async def test_a_list_whose_token_expires_is_asked_for_at_once(self) -> None:
        expired = failing(410, "Expired")
        handlers = (answer(200, page("a", token="t")), expired, answer(200, page("a", "b", version="12")))
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            found = await client.list(Widget, page_size=1)
        assert ([item.metadata.name for item in found.items], found.resource_version) == (["a", "b"], "12")
        assert "limit" not in server.requests[2].query

    async def test_a_list_that_is_gone_twice_is_gone(self) -> None:
        async with scripted(failing(410, "Expired")) as server, Client(server.credentials()) as client:
            with pytest.raises(Gone):
                await client.list(Widget, resource_version="3")
        assert len(server.requests) == 2

    async def test_an_object_that_is_not_what_its_kind_says_is_undecodable(self) -> None:
        async with (
            scripted(answer(200, widget("a", spec={"size": "big"}))) as server,
            Client(server.credentials()) as client,
        ):
            with pytest.raises(Undecodable, match=r"spec\.size"):
                await client.get(Widget, "a", "ns")

    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
    async def test_a_name_cannot_lead_to_another_path(self, name: str) -> None:
        async with scripted(answer(200, {})) as server, Client(server.credentials()) as client:
            with pytest.raises(BadRequest):
                await client.delete(Widget, name, "ns")
        assert server.requests == []

    async def test_a_name_with_odd_characters_arrives_as_it_is(self) -> None:
        async with scripted(answer(200, {"metadata": {}})) as server, Client(server.credentials()) as client:
            await client.get(NODE, "system:node é?x#y")
        assert server.requests[0].path == "/api/v1/nodes/system:node é?x#y"


class TestWatching:
    async def watched(self, kind: Any, *handlers: Handler, **options: Any) -> list[Any]:
        async with scripted(*handlers) as server, Client(server.credentials()) as client:
            found = await events(client.watch(kind, "ns", resource_version="3", **options))
        query = dict(server.requests[0].query)
        assert 300 <= int(query.pop("timeoutSeconds")) <= 600, "not all at once"
        assert query == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "3"}
        return found

    async def test_events_come_typed_until_the_server_ends_the_watch(self) -> None:
        bookmark = {"kind": "Widget", "metadata": {"resourceVersion": "8", "creationTimestamp": None}}
        lines = [
            frame("ADDED", widget("a", "4")),
            frame("MODIFIED", widget("a", "5", extra=True)),
            frame("DELETED", widget("a", "6")),
            frame("BOOKMARK", bookmark),
        ]
        added, modified, deleted, last = await self.watched(Widget, streaming(*lines))
        assert [(e.type, e.resource_version) for e in (added, modified, deleted)] == [
            ("ADDED", "4"),
            ("MODIFIED", "5"),
            ("DELETED", "6"),
        ]
        assert isinstance(added.object, Widget)
        assert modified.object.unknown == {"extra": True}
        assert last == Bookmark("8")

    async def test_a_view_without_a_version_still_tells_the_events_version(self) -> None:
        pod = {"metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"many": "things"}}
        found = await self.watched(Pod, streaming(frame("ADDED", pod)))
        assert found == [Change("ADDED", Pod(metadata=NameOnly(name="p")), "7")]

    async def test_a_bookmark_needs_no_complete_object(self) -> None:
        bookmark = frame("BOOKMARK", {"metadata": {"resourceVersion": "8"}})
        assert await self.watched(Pod, streaming(bookmark)) == [Bookmark("8")]
        assert await self.watched(Pod.resource, streaming(bookmark)) == [Bookmark("8")]

    @pytest.mark.parametrize("kind", [Widget, Pod, NODE])
    async def test_an_error_event_raises_what_its_status_says(self, kind: Any) -> None:
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        with pytest.raises(Gone, match="too old"):
            await self.watched(kind, streaming(frame("ERROR", gone)))

    async def test_a_line_may_be_longer_than_any_buffer_and_come_in_pieces(self) -> None:
        line = frame("ADDED", widget("a", "4", blob="x" * 3_000_000))
        pieces = [line[i : i + 100_000] for i in range(0, len(line), 100_000)]
        (event,) = await self.watched(Widget, streaming(*pieces))
        assert len(event.object.unknown["blob"]) == 3_000_000

    async def test_leaving_a_watch_closes_its_connection(self) -> None:
        left = asyncio.Event()

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await streaming(frame("ADDED", widget("a")), then=hang)(request)
            finally:
                left.set()

        async with scripted(handle) as server, Client(server.credentials()) as client:
            async with aclosing(client.watch(Widget, resource_version="0")) as watch:
                async for _ in watch:
                    break
            async with asyncio.timeout(10):
                await left.wait()


class TestWriting:
    async def test_create_goes_to_the_objects_namespace_with_our_field_manager(self) -> None:
        async with (
            scripted(answer(201, widget("a"))) as server,
            Client(server.credentials(), field_manager="me", user_agent="agent/1") as client,
        ):
            made = await client.create(Widget(metadata=ObjectMeta(name="a", namespace="ns")))
            await client.create(Widget(metadata=ObjectMeta(name="a")), namespace="other")
            await client.create(widget("a"), resource=Widget.resource)
        assert isinstance(made, Widget)
        root = "/apis/example.io/v1/namespaces"
        assert [request.path_qs for request in server.requests] == [
            f"{root}/ns/widgets?fieldManager=me",
            f"{root}/other/widgets?fieldManager=me",
            f"{root}/ns/widgets?fieldManager=me",
        ]
        assert server.sent("Content-Type") == ["application/json"] * 3
        assert server.sent("User-Agent") == ["agent/1"] * 3
        assert msgspec.json.decode(server.bodies[0]) == {
            "apiVersion": "example.io/v1",
            "kind": "Widget",
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": {},
        }

    async def test_update_writes_back_what_it_did_not_understand(self) -> None:
        original = widget("a", status={"new": [1]})
        async with scripted(answer(200, original)) as server, Client(server.credentials()) as client:
            found = await client.get(Widget, "a", "ns")
            found.spec.size = 4
            await client.update(found)
            await client.update_status(found)
        assert [(r.method, r.path) for r in server.requests[1:]] == [
            ("PUT", "/apis/example.io/v1/namespaces/ns/widgets/a"),
            ("PUT", "/apis/example.io/v1/namespaces/ns/widgets/a/status"),
        ]
        assert msgspec.json.decode(server.bodies[1]) == original | {"spec": {"size": 4}}

    @pytest.mark.parametrize(
        ("patch", "media_type", "query", "body"),
        [
            (
                MergePatch({"status": {"a": None}}),
                "application/merge-patch+json",
                {"fieldManager": "subnetes"},
                {"status": {"a": None}},
            ),
            (
                MergePatch(Spec(size=2)),
                "application/merge-patch+json",
                {"fieldManager": "subnetes"},
                {"size": 2},
            ),
            (
                JsonPatch([{"op": "remove", "path": "/spec"}]),
                "application/json-patch+json",
                {"fieldManager": "subnetes"},
                [{"op": "remove", "path": "/spec"}],
            ),
            (
                Apply({"spec": {"size": 1}}, force=True, field_manager="x"),
                "application/apply-patch+yaml",
                {"fieldManager": "x", "force": "true"},
                {"spec": {"size": 1}},
            ),
        ],
    )
    async def test_each_patch_has_its_media_type(
        self, patch: MergePatch | JsonPatch | Apply, media_type: str, query: object, body: object
    ) -> None:
        async with scripted(answer(200, widget("a"))) as server, Client(server.credentials()) as client:
            assert isinstance(await client.patch(Widget, "a", patch, "ns", subresource="status"), Widget)
        (request,) = server.requests
        assert (request.method, request.path) == (
            "PATCH",
            "/apis/example.io/v1/namespaces/ns/widgets/a/status",
        )
        assert (request.headers["Content-Type"], dict(request.query)) == (media_type, query)
        assert msgspec.json.decode(server.bodies[0]) == body

    async def test_delete_sends_options_only_when_there_are_some(self) -> None:
        async with scripted(answer(200, {})) as server, Client(server.credentials()) as client:
            await client.delete(Widget, "a", "ns")
            await client.delete(NODE, "a", uid="u", resource_version="7", propagation="Foreground")
        assert server.bodies[0] == b""
        assert msgspec.json.decode(server.bodies[1]) == {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u", "resourceVersion": "7"},
            "propagationPolicy": "Foreground",
        }


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_do_not_depend_on_where_the_chunks_end(size: int) -> None:
    data = b"one\n\ntwo\n\r\nthree\nrest"
    lines = Lines()
    found = [line for i in range(0, len(data), size) for line in lines.feed(data[i : i + size])]
    assert (found, lines.rest) == ([b"one", b"two", b"three"], b"rest")


@pytest.mark.parametrize("body", [b'{"items": []}', b"broken"])
@pytest.mark.parametrize("enabled", [True, False])
def test_reading_a_list_leaves_the_garbage_collector_as_it_was(body: bytes, enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with suppress(ApiError):
            codec_of(Widget).listing(body)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()

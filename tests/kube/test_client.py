"""Our client against real servers: every verb, typed and untyped, and the failures only they can make."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.model import Model, View
from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.codec import Bookmark, Change
from subnetes.kube.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
    Unavailable,
)
from subnetes.kube.patches import Apply, JsonPatch, MergePatch
from subnetes.kube.sources import from_kubeconfig
from tests.harness.control_plane import ControlPlane
from tests.harness.widgets import GROUP
from tests.kube.conftest import Server

pytestmark = pytest.mark.usefixtures("widgets")


class Spec(Model):
    size: int | None = None
    label: str | None = None
    counts: dict[str, int] | None = None


class State(Model):
    state: str | None = None
    count: int | None = None


class Widget(Object):
    resource = Resource(GROUP, "v1", "Widget", "widgets")

    spec: Spec = msgspec.field(default_factory=Spec)
    status: State = msgspec.field(default_factory=State)


class Name(View):
    name: str


class WidgetView(View):
    resource = Widget.resource

    metadata: Name


WIDGET = Widget.resource
CONFIG_MAP = Resource("", "v1", "ConfigMap", "configmaps")


def widget(name: str, namespace: str | None = None, **spec: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, namespace=namespace), spec=Spec(**spec))


def untyped(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": WIDGET.api_version, "kind": "Widget", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(from_kubeconfig(server.kubeconfig)) as client:
        yield client


class TestTyped:
    async def test_an_object_lives_through_every_verb(self, client: Client, namespace: str) -> None:
        made = await client.create(widget("a", namespace, size=2))
        assert (made.metadata.generation, made.spec.size) == (1, 2)
        assert made.spec.unknown == {
            "color": "red"
        }  # a default of the server's that our struct does not know

        made.spec.size = 4
        updated = await client.update(made)
        assert (updated.metadata.generation, updated.spec.unknown) == (2, {"color": "red"})

        updated.status.count = 7
        updated.spec.size = 9
        stated = await client.update_status(updated)
        assert (stated.status.count, stated.spec.size, stated.metadata.generation) == (7, 4, 2)
        assert await client.get(Widget, "a", namespace) == stated

        await client.delete(Widget, "a", namespace)
        with pytest.raises(NotFound) as caught:
            await client.get(Widget, "a", namespace)
        assert (caught.value.code, caught.value.reason) == (404, "NotFound")

    async def test_patches_change_what_they_name(self, client: Client, namespace: str) -> None:
        await client.create(widget("a", size=2, label="abc"), namespace=namespace)
        merged = await client.patch(Widget, "a", MergePatch({"spec": {"label": None, "size": 3}}), namespace)
        assert (merged.spec.size, merged.spec.label) == (3, None)
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/spec/size", "value": 3},
            {"op": "add", "path": "/spec/label", "value": "xyz"},
        ]
        assert (await client.patch(Widget, "a", JsonPatch(operations), namespace)).spec.label == "xyz"
        status = MergePatch({"status": {"state": "On"}, "spec": {"size": 9}})
        stated = await client.patch(Widget, "a", status, namespace, subresource="status")
        assert (stated.status.state, stated.spec.size) == ("On", 3)

    async def test_our_field_manager_is_written_down(self, server: Server, namespace: str) -> None:
        async with Client(from_kubeconfig(server.kubeconfig), field_manager="bookkeeper") as client:
            made = await client.create(widget("a", namespace))
        managers = {field["manager"] for field in made.metadata.managed_fields or []}
        assert managers <= {"bookkeeper"}  # the embedded server keeps no such books
        assert managers or server.name == "embedded"

    async def test_a_view_reads_patches_and_deletes(self, client: Client, namespace: str) -> None:
        await client.create(widget("a", namespace))
        seen = await client.get(WidgetView, "a", namespace)
        assert seen == WidgetView(metadata=Name(name="a"))
        assert (await client.list(WidgetView, namespace)).items == [seen]
        await client.patch(WidgetView, "a", MergePatch({"metadata": {"labels": {"x": "y"}}}), namespace)
        await client.delete(WidgetView, "a", namespace)
        assert (await client.list(WidgetView, namespace)).items == []


class TestUntyped:
    async def test_an_object_lives_through_every_verb(self, client: Client, namespace: str) -> None:
        made = await client.create(untyped("a", size=2), resource=WIDGET, namespace=namespace)
        made["spec"]["size"] = 3
        updated = await client.update(made, resource=WIDGET)
        updated["status"] = {"count": 1}
        stated = await client.update_status(updated, resource=WIDGET)
        assert (stated["spec"]["size"], stated["status"]) == (3, {"count": 1})
        patched = await client.patch(WIDGET, "a", MergePatch({"spec": {"size": 5}}), namespace)
        assert await client.get(WIDGET, "a", namespace) == patched
        assert (await client.list(WIDGET, namespace)).items == [patched]
        await client.delete(WIDGET, "a", namespace)
        with pytest.raises(NotFound):
            await client.get(WIDGET, "a", namespace)

    async def test_items_of_a_built_in_list_say_what_they_are(self, client: Client, namespace: str) -> None:
        await client.create({"metadata": {"name": "c"}, "data": {}}, resource=CONFIG_MAP, namespace=namespace)
        found = await client.list(CONFIG_MAP, namespace, field_selector="metadata.name=c")
        assert [(item["apiVersion"], item["kind"]) for item in found.items] == [("v1", "ConfigMap")]


class TestLists:
    async def test_small_pages_make_the_same_list(self, client: Client, namespace: str) -> None:
        for number in range(7):
            await client.create(widget(f"w{number}", namespace))
        whole = await client.list(Widget, namespace, page_size=0)
        paged = await client.list(Widget, namespace, page_size=2)
        assert [item.metadata.name for item in paged.items] == [f"w{number}" for number in range(7)]
        assert paged.items == whole.items
        sizes = [len(page.items) async for page in client.pages(Widget, namespace, page_size=3)]
        assert sizes == [3, 3, 1]

    async def test_selectors_choose(self, client: Client, namespace: str) -> None:
        for name in ("a", "b"):
            labelled = widget(name, namespace)
            labelled.metadata.labels = {"letter": name}
            await client.create(labelled)
        by_label = await client.list(Widget, namespace, label_selector="letter in (b)")
        by_field = await client.list(Widget, namespace, field_selector="metadata.name=a")
        assert [item.metadata.name for item in by_label.items + by_field.items] == ["b", "a"]

    async def test_a_list_may_be_as_old_as_it_likes(self, client: Client, namespace: str) -> None:
        made = await client.create(widget("a", namespace))
        version = made.metadata.resource_version
        fresh_enough = await client.list(Widget, namespace, resource_version=version)
        assert [item.metadata.name for item in fresh_enough.items] == ["a"]


class TestWatches:
    async def test_a_watch_goes_on_where_a_list_or_another_watch_ended(
        self, client: Client, namespace: str
    ) -> None:
        made = await client.create(widget("a", namespace))
        listed = await client.list(Widget, namespace)
        await client.patch(Widget, "a", MergePatch({"spec": {"size": 5}}), namespace)
        await client.delete(Widget, "a", namespace)
        first = await self.take(client, namespace, listed.resource_version, 2)
        assert [(event.type, event.object.spec.size) for event in first] == [("MODIFIED", 5), ("DELETED", 5)]
        assert first[0].object.metadata.uid == made.metadata.uid
        again = await self.take(client, namespace, first[0].resource_version, 1)
        assert again == first[1:]

    async def take(self, client: Client, namespace: str, version: str, count: int) -> list[Change[Widget]]:
        found: list[Change[Widget]] = []
        watch = client.watch(Widget, namespace, resource_version=version)
        async with asyncio.timeout(30), aclosing(watch):
            while len(found) < count:
                event = await anext(watch)
                if not isinstance(event, Bookmark):
                    found.append(event)
        return found

    async def test_the_servers_timeout_ends_a_watch_quietly(self, client: Client, namespace: str) -> None:
        listed = await client.list(Widget, namespace)
        watch = client.watch(Widget, namespace, resource_version=listed.resource_version, timeout_seconds=1)
        assert [event async for event in watch if not isinstance(event, Bookmark)] == []


class TestRefusals:
    async def test_a_name_is_taken_once(self, client: Client, namespace: str) -> None:
        await client.create(widget("a", namespace))
        with pytest.raises(AlreadyExists):
            await client.create(widget("a", namespace))

    async def test_a_stale_write_is_a_conflict(self, client: Client, namespace: str) -> None:
        stale = await client.create(widget("a", namespace))
        await client.patch(Widget, "a", MergePatch({"spec": {"size": 5}}), namespace)
        for write in (client.update, client.update_status):
            with pytest.raises(Conflict):
                await write(stale)

    async def test_an_invalid_object_tells_its_causes(self, client: Client, namespace: str) -> None:
        with pytest.raises(Invalid) as caught:
            await client.create(widget("a", namespace, size=99))
        assert [(cause.field, cause.reason) for cause in caught.value.causes] == [
            ("spec.size", "FieldValueInvalid")
        ]
        assert "should be less than or equal to 10" in str(caught.value)

    async def test_a_bad_selector_is_a_bad_request(self, client: Client, namespace: str) -> None:
        with pytest.raises(BadRequest):
            await client.list(Widget, namespace, label_selector="a=b=c")
        with pytest.raises(BadRequest):
            await anext(client.watch(Widget, namespace, resource_version="", field_selector="no.such=1"))

    async def test_a_wrong_token_is_unauthorized(self, server: Server, tmp_path: Path) -> None:
        text = server.kubeconfig.read_text().replace(server.token, "wrong")
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(text)
        async with Client(from_kubeconfig(kubeconfig)) as client:
            with pytest.raises(Unauthorized):
                await client.list(Widget)

    async def test_deletion_can_be_bound_to_one_object_and_version(
        self, client: Client, namespace: str
    ) -> None:
        made = await client.create(widget("a", namespace))
        uid, version = made.metadata.uid, made.metadata.resource_version
        changed = await client.patch(Widget, "a", MergePatch({"spec": {"size": 5}}), namespace)
        with pytest.raises(Conflict):
            await client.delete(Widget, "a", namespace, uid="11111111-1111-1111-1111-111111111111")
        with pytest.raises(Conflict):
            await client.delete(Widget, "a", namespace, uid=uid, resource_version=version)
        await client.delete(
            Widget, "a", namespace, uid=uid, resource_version=changed.metadata.resource_version
        )
        with pytest.raises(NotFound):
            await client.delete(Widget, "a", namespace)


@pytest.mark.real
@pytest.mark.parametrize("server", ["real"], indirect=True)
class TestOnlyOnARealServer:
    async def test_applied_fields_have_owners_who_can_be_overruled(
        self, client: Client, namespace: str
    ) -> None:
        def applied(size: int, manager: str, force: bool = False) -> Apply:
            return Apply(widget("a", size=size), force=force, field_manager=manager)

        first = await client.patch(Widget, "a", applied(2, "one"), namespace)
        assert first.spec.size == 2
        with pytest.raises(Conflict) as caught:
            await client.patch(Widget, "a", applied(3, "two"), namespace)
        assert [(cause.reason, cause.field) for cause in caught.value.causes] == [
            ("FieldManagerConflict", ".spec.size")
        ]
        taken = await client.patch(Widget, "a", applied(3, "two", force=True), namespace)
        assert taken.spec.size == 3

    async def test_a_user_without_rights_is_forbidden_every_verb(
        self, real: ControlPlane, client: Client, namespace: str
    ) -> None:
        made = await client.create(widget("a", namespace))
        async with Client(from_kubeconfig(real.users["alice"].kubeconfig)) as alice:
            calls: list[Callable[[], Any]] = [
                lambda: alice.get(Widget, "a", namespace),
                lambda: alice.list(Widget, namespace),
                lambda: anext(alice.watch(Widget, namespace, resource_version="0")),
                lambda: alice.create(widget("b", namespace)),
                lambda: alice.update(made),
                lambda: alice.patch(Widget, "a", MergePatch({}), namespace),
                lambda: alice.delete(Widget, "a", namespace),
            ]
            for call in calls:
                with pytest.raises(Forbidden, match='User "alice" cannot'):
                    await call()

    @pytest.mark.parametrize("kind", [Widget, WidgetView, WIDGET])
    async def test_a_version_of_long_ago_is_gone(self, client: Client, namespace: str, kind: Any) -> None:
        await client.create(widget("a", namespace))
        with pytest.raises(Gone):
            await anext(client.watch(kind, namespace, resource_version="1"))

    async def test_impersonation_acts_as_the_other(
        self, real: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        kubeconfig = tmp_path / "kubeconfig"
        text = real.kubeconfig.read_text().replace('{"token": "admin"}', '{"token": "admin", "as": "bob"}')
        kubeconfig.write_text(text)
        async with Client(from_kubeconfig(kubeconfig)) as client:
            with pytest.raises(Forbidden, match='User "bob" cannot'):
                await client.list(Widget, namespace)


@pytest.mark.real
@pytest.mark.parametrize("server", ["real"], indirect=True)
async def test_a_server_that_dies_is_unavailable_until_it_is_back(
    real: ControlPlane,
) -> None:
    with ControlPlane(real.assets) as plane:
        async with Client(from_kubeconfig(plane.kubeconfig)) as client:
            listed = await client.list(CONFIG_MAP, "default")
            watch = client.watch(CONFIG_MAP, "default", resource_version=listed.resource_version)
            waiting = asyncio.ensure_future(_drained(watch))
            await client.create({"metadata": {"name": "x"}}, resource=CONFIG_MAP, namespace="default")
            plane.kill_apiserver()
            with pytest.raises(Unavailable):
                await waiting
            with pytest.raises(Unavailable):
                await client.get(CONFIG_MAP, "x", "default")
            plane.start_apiserver()
            assert (await client.get(CONFIG_MAP, "x", "default"))["metadata"]["name"] == "x"


async def _drained(watch: AsyncIterator[object]) -> None:
    async for _ in watch:
        pass

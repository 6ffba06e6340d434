"""What an informer sees of a collection through selectors, on both servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from subnetes.api.core import ConfigMap
from subnetes.api.meta import ObjectMeta
from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.codec import Untyped
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection
from tests.harness.clients import client_of, eventually
from tests.kube.conftest import Server

PODS = Resource("", "v1", "Pod", "pods")


@asynccontextmanager
async def running(informer: Informer[ConfigMap] | Informer[Untyped]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informer.run())
        await informer.synced()
        yield
        informer.stop()


def config(name: str, namespace: str, color: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels={"color": color}))


async def recolor(client: Client, name: str, namespace: str, color: str) -> None:
    patch = MergePatch({"metadata": {"labels": {"color": color}}})
    await client.patch(ConfigMap, name, patch, namespace)


async def test_an_object_that_leaves_the_label_selection_is_told_as_deleted(
    server: Server, namespace: str
) -> None:
    told: list[tuple[bool, bool]] = []
    async with client_of(server) as client:
        await client.create(config("a", namespace, "red"))
        await client.create(config("b", namespace, "blue"))
        informer = Informer("red", Selection(client, ConfigMap, namespace, label_selector="color=red"))
        informer.on_change(lambda old, new: told.append((old is not None, new is not None)))
        async with running(informer):
            assert informer.store.keys() == [Key(namespace, "a")]
            await recolor(client, "a", namespace, "blue")
            await eventually(lambda: len(informer.store) == 0)
            await recolor(client, "b", namespace, "red")
            await eventually(lambda: informer.store.keys() == [Key(namespace, "b")])
        assert told == [(False, True), (True, False), (False, True)]


async def test_pods_of_one_node_are_followed_by_a_field_selector(server: Server, namespace: str) -> None:
    async with client_of(server) as client:
        selection: Selection[Untyped] = Selection(client, PODS, namespace, field_selector="spec.nodeName=n1")
        informer = Informer("pods", selection, indexes={"node": lambda pod: [pod["spec"]["nodeName"]]})
        async with running(informer):
            for name, node in (("p1", "n1"), ("p2", "n2"), ("p3", "n1")):
                await client.create(pod(name, node), resource=PODS, namespace=namespace)
            await eventually(lambda: len(informer.store) == 2)
            names = [each["metadata"]["name"] for each in informer.store.by("node", "n1")]
            assert sorted(names) == ["p1", "p3"]
        assert informer.store.by("node", "n2") == []


def pod(name: str, node: str) -> Untyped:
    container = {"name": "main", "image": "pause"}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def test_every_page_of_a_long_list_is_in_the_store(server: Server, namespace: str) -> None:
    async with client_of(server) as client:
        for start in range(0, 600, 50):
            names = [f"thing-{number:03}" for number in range(start, start + 50)]
            await asyncio.gather(*(client.create(config(name, namespace, "red")) for name in names))
        informer = Informer("many", Selection(client, ConfigMap, namespace, label_selector="color=red"))
        async with running(informer):
            assert len(informer.store) == 600

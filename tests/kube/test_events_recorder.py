"""Events as people find them, on both servers."""

import asyncio

from prometheus_client import CollectorRegistry

from subnetes.api.core import ConfigMap, Event, Node
from subnetes.api.meta import ObjectMeta, ObjectMetaView
from subnetes.kube.client import Client
from subnetes.kube.events import Recorder
from subnetes.kube.metrics import Metrics
from tests.harness.clients import client_of
from tests.kube.conftest import Server


async def events_about(client: Client, name: str, namespace: str) -> dict[str, Event]:
    found = await client.list(Event, namespace)
    return {event.message: event for event in found.items if event.involved_object.name == name}


async def test_a_repeated_event_is_one_object_that_counts(server: Server, namespace: str) -> None:
    registry = CollectorRegistry()
    async with client_of(server) as client:
        pool = await client.create(ConfigMap(metadata=ObjectMeta(name="pool", namespace=namespace)))
        recorder = Recorder(client, "subnetes", "node-1", metrics=Metrics(registry))
        running = asyncio.create_task(recorder.run())
        recorder.normal(pool, "Scaled", "grew")
        while not await events_about(client, "pool", namespace):
            await asyncio.sleep(0.02)
        for _ in range(4):
            recorder.normal(pool, "Scaled", "grew")
        recorder.warning(pool, "Exhausted", "no IPs left")
        recorder.stop()
        await running
        found = await events_about(client, "pool", namespace)
    assert {message: event.count for message, event in found.items()} == {"grew": 5, "no IPs left": 1}
    assert found["grew"].involved_object.uid == pool.metadata.uid
    assert found["no IPs left"].type == "Warning"
    assert registry.get_sample_value("events_dropped_total", {"why": "refused"}) is None


async def test_an_event_about_a_node_can_be_written(server: Server, namespace: str) -> None:
    name = f"node-of-{namespace}"
    async with client_of(server) as client:
        recorder = Recorder(client, "subnetes", "node-1")
        running = asyncio.create_task(recorder.run())
        recorder.normal(Node(metadata=ObjectMetaView(name=name)), "NetworkReady", "all devices are up")
        recorder.stop()
        await running
        (event,) = (await events_about(client, name, "default")).values()
        assert event.involved_object.kind == "Node"
        await client.delete(Event, event.metadata.name, "default")

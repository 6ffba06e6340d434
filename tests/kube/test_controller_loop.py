"""A whole controller on both servers: informer, queue, reconciler, lease and events, stopped without loss."""

import asyncio

from subnetes.api.core import ConfigMap, Lease
from subnetes.api.meta import ObjectMeta
from subnetes.kube.client import Client
from subnetes.kube.controller import Controller, Result
from subnetes.kube.election import Terms
from subnetes.kube.events import Recorder
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.lease import Elector, Leading
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection
from subnetes.kube.services import run
from tests.harness.clients import client_of, eventually
from tests.kube.conftest import Server


class Doubler:
    """Keeps `double` twice the `number`; its reads are from the informer's store, so conflicts do happen."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.informer = Informer("numbers", Selection(client, ConfigMap, namespace))

    async def reconcile(self, key: Key) -> Result | None:
        seen = self.informer.store.get(key)
        if seen is None or not seen.data or "number" not in seen.data:
            return None
        double = str(2 * int(seen.data["number"]))
        if seen.data.get("double") != double:
            changed = ConfigMap(metadata=seen.metadata, data=seen.data | {"double": double})
            await self.client.update(changed)
        return None


async def test_the_world_becomes_as_declared_and_the_lease_is_given_back(
    server: Server, namespace: str
) -> None:
    async with client_of(server) as client:
        doubler, stop = Doubler(client, namespace), asyncio.Event()
        controller = Controller("doubler", doubler.reconcile, workers=4)
        controller.follow(doubler.informer)
        recorder = Recorder(client, "doubler", "test")
        elector = Elector(client, Key(namespace, "doubler"), "me", Terms(6, 4.0, 0.5))
        leading = Leading(elector, recorder, doubler.informer, controller)
        running = asyncio.create_task(run(leading, stop=stop))
        await write_numbers(client, namespace)
        await all_doubled(client, namespace)
        stop.set()
        await running
        lease = await client.get(Lease, "doubler", namespace)
    assert lease.spec.holder_identity is None


async def write_numbers(client: Client, namespace: str) -> None:
    """Each number is written twice, the second time on top of whatever the controller made of it."""
    for number in range(30):
        metadata = ObjectMeta(name=f"number-{number}", namespace=namespace)
        made = await client.create(ConfigMap(metadata=metadata, data={"number": "-1"}))
        made.metadata.resource_version = None
        made.data = {"number": str(number)}
        await client.update(made)


async def all_doubled(client: Client, namespace: str) -> None:
    expected = {f"number-{number}": str(2 * number) for number in range(30)}
    async with asyncio.timeout(60):
        while True:
            found = (await client.list(ConfigMap, namespace)).items
            doubles = {obj.metadata.name: (obj.data or {}).get("double") for obj in found}
            if expected.items() <= doubles.items():
                return
            await asyncio.sleep(0.05)


async def test_work_in_process_is_finished_before_the_stop(server: Server, namespace: str) -> None:
    begun, finished = set[str](), set[str]()
    async with client_of(server) as client:

        async def reconcile(key: Key) -> None:
            begun.add(key.name)
            for step in ("one", "two", "three"):
                await client.patch(ConfigMap, key.name, MergePatch({"data": {"step": step}}), key.namespace)
            finished.add(key.name)

        controller, stop = Controller("steps", reconcile, workers=4), asyncio.Event()
        running = asyncio.create_task(run(controller, stop=stop))
        for number in range(20):
            metadata = ObjectMeta(name=f"thing-{number}", namespace=namespace)
            await client.create(ConfigMap(metadata=metadata))
        for number in range(20):
            controller.enqueue(Key(namespace, f"thing-{number}"))
        await eventually(lambda: bool(begun))
        stop.set()
        await running
        left = {
            obj.metadata.name: (obj.data or {}) for obj in (await client.list(ConfigMap, namespace)).items
        }
    assert 0 < len(begun) < 20
    assert finished == begun
    assert {name for name, data in left.items() if data == {"step": "three"}} == begun

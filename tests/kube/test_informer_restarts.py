"""The informer's store is the server's, whatever becomes of the server meanwhile."""

import asyncio
import random
from collections import Counter
from pathlib import Path

from subnetes.api.core import ConfigMap
from subnetes.api.meta import ObjectMeta
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key, key_of
from subnetes.kube.patches import MergePatch
from subnetes.kube.selection import Selection
from tests.harness.clients import client_of, eventually
from tests.harness.control_plane import ControlPlane

RESTARTS = 10
WRITES_BETWEEN = 40
NAMESPACE = "default"


class Writer:
    """Creates, changes and deletes without pause, and does not mind when it fails."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.done: Counter[str] = Counter()
        self.stopping = False

    async def run(self) -> None:
        dice = random.Random(3)
        while not self.stopping:
            name, deed = f"thing-{dice.randrange(25)}", dice.choice(["create", "patch", "patch", "delete"])
            try:
                await self.write(deed, name, dice.randrange(10**6))
            except ApiError as problem:
                self.done[type(problem).__name__] += 1
                await asyncio.sleep(0.01)
            else:
                self.done["written"] += 1

    async def has_gone_on(self) -> None:
        """Return when much has been written since the call."""
        enough = self.done["written"] + WRITES_BETWEEN
        await eventually(lambda: self.done["written"] >= enough)

    async def write(self, deed: str, name: str, number: int) -> None:
        data = {"number": str(number)}
        if deed == "create":
            metadata = ObjectMeta(name=name, namespace=NAMESPACE, labels={"followed": "yes"})
            await self.client.create(ConfigMap(metadata=metadata, data=data))
        elif deed == "patch":
            await self.client.patch(ConfigMap, name, MergePatch({"data": data}), NAMESPACE)
        else:
            await self.client.delete(ConfigMap, name, NAMESPACE)


class Follower:
    """Replays what it is told."""

    def __init__(self) -> None:
        self.state: dict[Key, ConfigMap] = {}
        self.newest: dict[Key, int] = {}

    def __call__(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        known = new or old
        assert known is not None
        key = key_of(known)
        assert self.state.get(key) == old
        if new is None:
            del self.state[key]
            return
        version = int(new.metadata.resource_version or 0)
        assert version > self.newest.get(key, 0)
        self.state[key], self.newest[key] = new, version


async def test_store_equals_the_server_after_ten_kills_under_writes(assets: Path) -> None:
    with ControlPlane(assets) as plane:
        async with client_of(plane, deadline=5.0) as client, client_of(plane) as writers_client:
            informer = Informer(
                "things", Selection(client, ConfigMap, NAMESPACE, label_selector="followed=yes")
            )
            follower = Follower()
            informer.on_change(follower)
            writer = Writer(writers_client)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(informer.run())
                tasks.create_task(writer.run())
                await informer.synced()
                await restart_again_and_again(plane, writer)
                writer.stopping = True
                await compare(client, informer, follower)
                informer.stop()
            assert writer.done["Unavailable"] >= RESTARTS, "the writer must have felt every restart"


async def restart_again_and_again(plane: ControlPlane, writer: Writer) -> None:
    for _ in range(RESTARTS):
        await writer.has_gone_on()
        await asyncio.to_thread(plane.kill_apiserver)
        await asyncio.to_thread(plane.start_apiserver)
    await writer.has_gone_on()


async def compare(client: Client, informer: Informer[ConfigMap], follower: Follower) -> None:
    listing = await client.list(ConfigMap, NAMESPACE, label_selector="followed=yes")
    truth = {key_of(obj): obj for obj in listing.items}
    assert truth
    await eventually(lambda: {key_of(obj): obj for obj in informer.store} == truth)
    await eventually(lambda: follower.state == truth)

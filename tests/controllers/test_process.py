"""The whole of DNC-RC with its informers, queues and lease, as `subnetes controller` runs it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from subnetes.api.core import Event, Lease
from subnetes.controllers.process import Settings, dnc_rc, in_memory
from subnetes.controllers.web import Listener
from subnetes.kube.election import Terms
from subnetes.kube.key import Key
from subnetes.kube.lease import Elector
from subnetes.kube.metrics import Metrics
from subnetes.kube.services import run
from tests.controllers.world import NAMESPACE, World, ids
from tests.harness.processes import free_ports

pytestmark = pytest.mark.slow

QUICK = Terms(duration=3, renew_deadline=2.0, retry_period=0.2)


@asynccontextmanager
async def controllers(world: World, listen: str = "", grace: float = 0.5) -> AsyncIterator[None]:
    metrics, stop = Metrics(), asyncio.Event()
    settings = Settings(identity="test", node_grace=grace, terms=QUICK)
    service = dnc_rc(world.client, in_memory, settings, metrics)
    services = [Listener(listen, service, metrics), service] if listen else [service]
    running = asyncio.create_task(run(*services, stop=stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def becomes(question: Callable[[], Awaitable[bool]], patience: float = 30.0) -> None:
    async with asyncio.timeout(patience):
        while not await question():
            await asyncio.sleep(0.03)


async def holds(world: World, node: str, count: int) -> bool:
    return await world.exists(node) and await shown(world, node) == count


async def shown(world: World, node: str) -> int | None:
    status = (await world.get(node)).status
    found = (status.network_containers if status else None) or []
    return found[0].secondary_ip_count if found else None


async def test_nodes_join_ask_wait_let_go_and_leave(world: World) -> None:
    await world.subnet(space="10.1.0.0/28")
    async with controllers(world):
        for name in "ab":
            await world.node(name)
            await becomes(lambda name=name: holds(world, name, 0))  # type: ignore[misc]
        await world.ask("a", 10)
        await becomes(lambda: holds(world, "a", 10))
        await world.ask("b", 6)
        await becomes(lambda: holds(world, "b", 1))
        await world.ask("a", 7, ids(await world.nc("a"))[:3])
        await becomes(lambda: holds(world, "b", 4))
        await world.delete_node("a")
        await becomes(lambda: holds(world, "b", 6))
        events = (await world.client.list(Event, NAMESPACE)).items
        assert "SubnetFull" in {each.reason for each in events}
    lease = await world.client.get(Lease, "subnetes-controller", NAMESPACE)
    assert lease.spec.holder_identity is None, "given back"


async def test_a_second_start_goes_on_where_the_first_ended(world: World) -> None:
    await world.subnet()
    async with controllers(world):
        await world.node("a")
        await becomes(lambda: holds(world, "a", 0))
        await world.ask("a", 15)
        await becomes(lambda: holds(world, "a", 15))
    before = ids(await world.nc("a"))
    await world.node("b")
    async with controllers(world):
        await becomes(lambda: holds(world, "b", 0))
        await world.ask("b", 15)
        await becomes(lambda: holds(world, "b", 15))
    addresses = await world.addresses()
    assert (ids(await world.nc("a")), len(addresses)) == (before, len(set(addresses)))


async def test_who_does_not_lead_waits_and_says_so(world: World) -> None:
    (port,) = free_ports(1)
    other = Elector(world.client, Key(NAMESPACE, "subnetes-controller"), "somebody", QUICK)
    await world.subnet()
    async with aiohttp.ClientSession() as session:
        async with other.leading(), controllers(world, f"127.0.0.1:{port}"):
            await answers(session, f"http://127.0.0.1:{port}/healthz")
            async with session.get(f"http://127.0.0.1:{port}/debug/ncs") as answer:
                assert answer.status == 503
        async with controllers(world, f"127.0.0.1:{port}"):
            await world.node("a")
            await becomes(lambda: holds(world, "a", 0))
            async with session.get(f"http://127.0.0.1:{port}/debug/ncs") as answer:
                assert [each["node"] for each in await answer.json()] == ["a"]
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert "controller_reconcile_total" in await answer.text()


async def answers(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with session.get(url) as answer:
                    assert answer.status == 200
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.03)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Listener("localhost", None, Metrics())  # type: ignore[arg-type]

"""`subnetes controller --dnc URL` beside `subnetes dnc`: both are processes, and each of them restarts."""

import asyncio
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from subnetes.dnc.http_client import HttpAllocator
from subnetes.dnc.types import SubnetKey
from tests.controllers.test_process import becomes, holds
from tests.controllers.world import World, ids
from tests.harness.clients import eventually
from tests.harness.processes import Child, free_ports, start

pytestmark = pytest.mark.slow

TOKEN = "green-token-0123456789"


class Site:
    """A place for both commands."""

    def __init__(self, world: World, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder, self._world, self._started = folder, world, 0
        self.tokens, self.token = folder / "tokens", folder / "token"
        self.tokens.write_text(f"{TOKEN},green\n")
        self.token.write_text(TOKEN + "\n")

    def dnc(self) -> Child:
        words = ["dnc", f"--listen=127.0.0.1:{self.port}", f"--tokens={self.tokens}"]
        return self._start(*words, f"--database=sqlite:{self._folder / 'dnc.db'}")

    def controller(self) -> Child:
        words = ["controller", f"--kubeconfig={self._world.kubeconfig}", "--cluster=green"]
        lease = ["--lease-duration=3", "--renew-deadline=2", "--retry-period=0.2", "--node-grace=1"]
        return self._start(*words, *lease, f"--dnc={self.url}", f"--dnc-token-file={self.token}")

    def _start(self, *words: str) -> Child:
        self._started += 1
        log = self._folder / f"{words[0]}-{self._started}.log"
        return start([sys.executable, "-m", "subnetes.cli.main", *words], log)


@contextmanager
def running(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.kill()


async def ended(child: Child) -> int:
    """Not in this thread, which also is the API server's."""
    child.process.send_signal(signal.SIGTERM)
    return await asyncio.to_thread(child.process.wait, 30)


async def ready(child: Child) -> None:
    await eventually(lambda: bool(re.search("is ready", child.tail())))


async def test_nothing_is_lost_when_either_of_them_restarts(world: World, tmp_path: Path) -> None:
    site = Site(world, tmp_path)
    await world.subnet()
    await world.node("a")
    with running(site.dnc()) as dnc, running(site.controller()) as controller:
        await becomes(lambda: holds(world, "a", 0))
        await world.ask("a", 15)
        await becomes(lambda: holds(world, "a", 15))
        before = await world.nc("a")
        assert await ended(dnc) == 0
        await world.node("b")
        await world.ask("a", 20)
        with running(site.dnc()) as second:
            await ready(second)
            await becomes(lambda: holds(world, "a", 20))
            await becomes(lambda: holds(world, "b", 0))
            assert await ended(controller) == 0
            await world.ask("b", 10)
            assert await ended(second) == 0
    with running(site.controller()), running(site.dnc()):
        await becomes(lambda: holds(world, "b", 10))
        nc = await world.nc("a")
        assert (nc.id, nc.primary_ip) == (before.id, before.primary_ip)
        assert set(ids(before)) < set(ids(nc))
        await world.ask("a", 5, ids(nc)[:15])
        await becomes(lambda: holds(world, "a", 5))
        shown = await world.addresses()
        assert len(shown) == len(set(shown)) == 17
        await becomes(lambda: reserves(site, 17))
        await world.delete_node("a")
        await becomes(lambda: reserves(site, 11))
        assert len(await world.addresses()) == 11


async def reserves(site: Site, count: int) -> bool:
    """Whether DNC has so many addresses on record."""
    client = HttpAllocator(site.url, TOKEN, "green")
    try:
        return (await client.utilization(SubnetKey("", "pods", 4))).reserved == count
    finally:
        await client.close()

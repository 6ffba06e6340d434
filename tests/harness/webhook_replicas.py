"""Replicas of `subnetes webhook` as processes, and what stands before them in a cluster: a Service.

The balancer knows of a replica what kubelet and endpoint controllers would: whether its /readyz says yes. A
new connection goes to one that does; those that are open stay where they are.
"""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from tests.harness.processes import Child, start

_READY = re.compile(r"is ready: https://([\d.]+):(\d+)/convert \(health and metrics: http://([\d.]+):(\d+)\)")
_LOOK_EVERY = 0.05
_CHUNK = 1 << 16


@dataclass
class Replica:
    child: Child
    reviews: tuple[str, int]
    health: tuple[str, int]

    async def metrics(self) -> str:
        return await _get(self.health, "/metrics")


class Replicas:
    """Those that run; `grow` and `shrink` change their number as a Deployment does, none is killed."""

    def __init__(self, kubeconfig: Path, folder: Path, flags: Sequence[str] = ()) -> None:
        self._kubeconfig, self._folder, self._flags = kubeconfig, folder, flags
        self._numbers = count(1)
        self.running: list[Replica] = []
        self.ended: list[int] = []  # exit codes
        self.balancer = Balancer(self)

    async def grow(self) -> Replica:
        command = [
            sys.executable,
            "-m",
            "subnetes.cli.main",
            "webhook",
            f"--kubeconfig={self._kubeconfig}",
            "--address=127.0.0.1:0",
            "--listen=127.0.0.1:0",
            "--hosts=127.0.0.1",
            *self._flags,
        ]
        child = start(command, self._folder / f"webhook-{next(self._numbers)}.log")
        try:
            async with asyncio.timeout(60):
                while (found := _READY.search(child.tail())) is None:
                    assert child.process.poll() is None, child.tail()
                    await asyncio.sleep(0.05)
        except BaseException:
            child.kill()
            raise
        host, port, health_host, health_port = found.groups()
        made = Replica(child, (host, int(port)), (health_host, int(health_port)))
        self.running.append(made)
        return made

    async def shrink(self) -> None:
        """The oldest goes, as one that is asked to: it ends when it has nothing left to do."""
        going = self.running[0]
        await asyncio.to_thread(going.child.stop, patience=60)
        self.running.remove(going)
        self.ended.append(going.child.process.returncode)

    async def roll(self) -> None:
        """Each is replaced by a new one, the new one first."""
        for _ in list(self.running):
            await self.grow()
            await self.shrink()

    def kill(self) -> None:
        for each in self.running:
            each.child.kill()


@asynccontextmanager
async def replicas(
    kubeconfig: Path, folder: Path, number: int = 2, flags: Sequence[str] = ()
) -> AsyncIterator[Replicas]:
    made = Replicas(kubeconfig, folder, flags)
    try:
        for _ in range(number):
            await made.grow()
        with made.balancer:
            yield made
    finally:
        made.kill()


class Balancer:
    """In a thread of its own, so that a busy test is no slow network."""

    def __init__(self, behind: Replicas) -> None:
        self._behind = behind
        self._ready: list[Replica] = []
        self._turns = count()
        self._up = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        self.refused = 0  # connections for which nobody was ready

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/convert"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._look()
        looking = asyncio.create_task(self._look_on())
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._stop.wait()
        server.close()
        for task in (looking, *self._connections):
            task.cancel()
        await asyncio.gather(looking, *self._connections, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close a turn of the loop later

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            await self._look()

    async def _look(self) -> None:
        known = list(self._behind.running)
        answers = await asyncio.gather(*(_is_ready(each) for each in known))
        self._ready = [each for each, ready in zip(known, answers, strict=True) if ready]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._forward(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            writer.transport.abort()
            self._connections.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = self._ready
        if not ready:
            self.refused += 1
            return
        chosen = ready[next(self._turns) % len(ready)]
        there, back = await asyncio.open_connection(*chosen.reviews)
        try:
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            back.transport.abort()


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Until the source ends; the end is told to the target, which may have more to say."""
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()
        target.write_eof()


async def _is_ready(replica: Replica) -> bool:
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(5):
            return " 200 " in (await _get(replica.health, "/readyz")).partition("\r\n")[0]
    return False


async def _get(where: tuple[str, int], path: str) -> str:
    reader, writer = await asyncio.open_connection(*where)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        return (await reader.read()).decode()
    finally:
        writer.transport.abort()

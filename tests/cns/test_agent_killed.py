"""A real `subnetes agent`, killed with -9 again and again while runtimes execute the real plugin.

Nothing that was answered is lost, no address has two sandboxes, a repeated ADD is answered the same, and no
DEL ever fails, whether the agent is there or not.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from subnetes.cni import plugin_path
from subnetes.cns.journal import read
from subnetes.ipam.pool import State
from tests.cni.execution import Output, Plugin
from tests.cni.requests import config, environment
from tests.cns.world import NODE, Grantor, api, make_subnet
from tests.harness.clients import eventually

KILLS = 6
RUNTIMES = 6
PODS = 4  # that each runtime has at most
BETWEEN = 12  # ADDs that succeed between two kills


class Machine:
    """The agent's process, and the plugin as its runtimes execute it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.agent: asyncio.subprocess.Process | None = None
        self._plugin = Plugin(plugin_path())
        self._config = config(ipam={"socket": str(folder / "cns.sock")})

    async def start(self) -> None:
        options = {
            "--node-name": NODE,
            "--kubeconfig": self.folder / "kubeconfig",
            "--socket": self.folder / "cns.sock",
            "--state-dir": self.folder / "state",
            "--listen": "",
            "--containerd-root": self.folder / "none",
            "--log-level": "warning",
        }
        words = [f"{name}={value}" for name, value in options.items()]
        self.agent = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("subnetes"), "agent", *words, stdin=asyncio.subprocess.DEVNULL
        )

    async def end(self, how: signal.Signals) -> int:
        assert self.agent is not None
        with suppress(ProcessLookupError):
            self.agent.send_signal(how)
        return await self.agent.wait()

    async def execute(self, command: str, container: str) -> Output:
        arguments = f"K8S_POD_NAMESPACE=web;K8S_POD_NAME=of-{container};K8S_POD_UID=uid-{container}"
        variables = environment(command, container, CNI_ARGS=arguments)
        return await asyncio.to_thread(self._plugin.run, variables, self._config)


class Books:
    """What the runtimes were told."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.owners: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self.stopping = False


class Runtime:
    """Makes sandboxes and ends them, one after the other, and asks twice now and then."""

    def __init__(self, name: str, machine: Machine, books: Books) -> None:
        self._name = name
        self._machine = machine
        self._books = books
        self._mine: list[str] = []
        self._serial = 0

    async def run(self) -> None:
        while not self._books.stopping:
            if len(self._mine) < PODS:
                await self._make()
            else:
                await self._ask_again(self._mine[-1])
                await self._delete(self._mine.pop(0))

    async def _make(self) -> None:
        self._serial += 1
        container = f"{self._name}-{self._serial}"
        added = await self._machine.execute("ADD", container)
        if added.code != 0:
            assert added.document["code"] == 11, added.text
            self._books.done["refused"] += 1
            await self._delete(container)
            await asyncio.sleep(0.05)
            return
        (address,) = (each["address"] for each in added.document["ips"])
        assert address not in self._books.owners, f"{address} is {container}'s and another's"
        self._books.owners[address] = container
        self._books.answers[container] = added.text
        self._books.done["added"] += 1
        self._mine.append(container)

    async def _ask_again(self, container: str) -> None:
        again = await self._machine.execute("ADD", container)
        if again.code == 0:
            assert again.text == self._books.answers[container]
            self._books.done["repeated"] += 1

    async def _delete(self, container: str) -> None:
        """Its address is nobody's from before the DEL, for the next one may have it before we are told."""
        self._books.answers.pop(container, None)
        for address in [each for each, owner in self._books.owners.items() if owner == container]:
            del self._books.owners[address]
        deleted = await self._machine.execute("DEL", container)
        assert (deleted.code, deleted.text) == (0, b"")


@asynccontextmanager
async def background(*work: asyncio.Task[None]) -> AsyncIterator[None]:
    """What fails in it fails the test at the end of the block."""
    try:
        yield
    finally:
        for each in work:
            each.cancel()
        outcome = await asyncio.gather(*work, return_exceptions=True)
    for problem in outcome:
        if isinstance(problem, Exception):
            raise problem


async def meet_for_ever(grantor: Grantor) -> None:
    while True:
        await grantor.meet()
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_killed_again_and_again_under_load_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    machine, books = Machine(tmp_path), Books()
    async with api(tmp_path) as client:
        await make_subnet(client)
        grantor = Grantor(client)
        await grantor.create_nnc()
        await machine.start()
        try:
            async with background(asyncio.create_task(meet_for_ever(grantor))):
                await under_load(machine, books)
                await all_is_there(machine, books, grantor)
            assert await machine.end(signal.SIGTERM) == 0
        finally:
            await machine.end(signal.SIGKILL)


async def under_load(machine: Machine, books: Books) -> None:
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for number in range(RUNTIMES):
            tasks.create_task(Runtime(f"r{number}", machine, books).run())
        for _ in range(KILLS):
            enough = books.done["added"] + BETWEEN
            await eventually(lambda enough=enough: books.done["added"] >= enough)  # type: ignore[misc]
            assert await machine.end(signal.SIGKILL) == -signal.SIGKILL
            await machine.start()
        books.stopping = True
    assert books.done["repeated"] > 0
    assert books.done["refused"] > 0  # it was really away


async def all_is_there(machine: Machine, books: Books, grantor: Grantor) -> None:
    """Asked again, everybody hears what they heard; the journal says the same, and holds what was granted."""
    for container, answer in books.answers.items():
        async with asyncio.timeout(30):
            while (again := await machine.execute("ADD", container)).code != 0:
                await asyncio.sleep(0.1)
        assert again.text == answer
    path = machine.folder / "state" / "journal"
    await eventually(lambda: read(path).pool.keys == {(each, "eth0") for each in books.answers})
    await eventually(lambda: {ip.id for ip in read(path).pool} == set(grantor.held))
    pool = read(path).pool
    held = {ip.address: ip.holder.container_id for ip in pool if ip.holder is not None}
    assert held == {address.partition("/")[0]: owner for address, owner in books.owners.items()}
    assert {ip.state for ip in pool} <= {State.ASSIGNED, State.AVAILABLE}
    assert not list((machine.folder / "cns.sock.queue").glob("*"))

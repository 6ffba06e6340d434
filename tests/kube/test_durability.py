"""What the embedded API server answered survives `kill -9`, whatever it was doing."""

import asyncio
import random
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
import pytest

from tests.harness.embedded import Embedded

pytestmark = pytest.mark.slow

PATH = "/api/v1/namespaces/default/configmaps"
ROUNDS = 20
WRITERS = 8


@dataclass
class Ledger:
    """What each object must be: the last answered value, or that of the write that was under way."""

    answered: dict[str, str | None] = field(default_factory=dict)
    under_way: dict[str, str | None] = field(default_factory=dict)
    acknowledged: int = 0

    def allows(self, name: str, value: str | None) -> bool:
        if value == self.answered.get(name):
            return True
        return name in self.under_way and value == self.under_way[name]

    def settle(self, found: dict[str, str]) -> None:
        """The server is up again: what it holds is now the truth about the unanswered writes."""
        self.answered = {name: found.get(name) for name in self.answered.keys() | self.under_way.keys()}
        self.under_way.clear()


async def writer(
    session: aiohttp.ClientSession, url: str, number: int, ledger: Ledger, dice: random.Random
) -> None:
    """Creates, replaces and deletes its own objects until the connection dies."""
    while True:
        name = f"w{number}-{dice.randrange(20)}"
        exists = ledger.answered.get(name) is not None
        value = None if exists and dice.random() < 0.3 else str(dice.random())
        ledger.under_way[name] = value
        body = {"metadata": {"name": name}, "data": {"value": value}}
        if value is None:
            call = session.delete(f"{url}{PATH}/{name}")
        elif exists:
            call = session.put(f"{url}{PATH}/{name}", json=body)
        else:
            call = session.post(f"{url}{PATH}", json=body)
        try:
            async with call as answer:
                assert answer.status < 300, await answer.text()
                await answer.read()
        except (aiohttp.ClientError, ConnectionError):
            return
        ledger.answered[name] = ledger.under_way.pop(name)
        ledger.acknowledged += 1


async def storm(server: Embedded, ledger: Ledger, dice: random.Random) -> None:
    async with client(server) as session:
        writers = [asyncio.create_task(writer(session, server.url, n, ledger, dice)) for n in range(WRITERS)]
        before = ledger.acknowledged
        wanted = dice.randrange(20, 200)
        while ledger.acknowledged < before + wanted:
            await asyncio.sleep(0.001)
        await asyncio.to_thread(server.kill)
        await asyncio.gather(*writers)


async def contents(server: Embedded) -> dict[str, str]:
    async with client(server) as session, session.get(f"{server.url}{PATH}") as answer:
        items = (await answer.json())["items"]
    return {item["metadata"]["name"]: item["data"]["value"] for item in items}


def client(server: Embedded) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(server.ca_file)))
    return aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {server.token}"})


@pytest.fixture
def private() -> Iterator[Embedded]:
    with Embedded() as server:
        yield server


@pytest.mark.slow
async def test_nothing_acknowledged_is_lost_by_kill_minus_nine(private: Embedded) -> None:
    ledger, dice = Ledger(), random.Random(20)
    for number in range(ROUNDS):
        await storm(private, ledger, dice)
        await asyncio.to_thread(private.start)
        found = await contents(private)
        names = ledger.answered.keys() | ledger.under_way.keys() | found.keys()
        wrong = {name: found.get(name) for name in names if not ledger.allows(name, found.get(name))}
        assert not wrong, f"round {number}: {wrong}"
        ledger.settle(found)
    assert ledger.acknowledged > 20 * ROUNDS


async def test_a_second_process_on_one_data_folder_says_so_and_stops(private: Embedded) -> None:
    command = [sys.executable, "-m", "subnetes.apiserver", f"--data-dir={private.data}", "--port=0"]
    second = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode != 0
    assert f"another process (pid {private.processes()['embedded']}) uses" in second.stderr
    assert "Traceback" not in second.stderr
    assert isinstance(await contents(private), dict)


async def test_a_restart_keeps_objects_revisions_and_credentials(private: Embedded) -> None:
    async with client(private) as session:
        body = {"metadata": {"name": "kept"}, "data": {"value": "1"}}
        async with session.post(f"{private.url}{PATH}", json=body) as answer:
            created = await answer.json()
    token, authority = private.token, private.ca_file.read_bytes()
    private.kill()
    await asyncio.to_thread(private.start)
    assert (private.token, private.ca_file.read_bytes()) == (token, authority)
    async with client(private) as session:
        async with session.get(f"{private.url}{PATH}/kept") as answer:
            assert await answer.json() == created
        async with session.put(
            f"{private.url}{PATH}/kept", json=created | {"data": {"value": "2"}}
        ) as answer:
            updated = await answer.json()
    assert int(updated["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])

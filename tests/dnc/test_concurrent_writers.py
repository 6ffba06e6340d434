"""Several processes on one database never hand one IP out twice, also when some are killed on the way."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from subnetes.cli.dnc import open_database
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.types import Declaration
from tests.dnc.writer import CLUSTER, SUBNET
from tests.harness.audit import audit
from tests.harness.clients import eventually
from tests.harness.postgres import Postgres
from tests.harness.processes import Child, start

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WRITERS = [f"writer-{number}" for number in range(8)]


class Crowd:
    def __init__(self, database: str, folder: Path, rounds: int) -> None:
        self.database = database
        self.claims = folder / "claims"
        self.claims.mkdir()
        self.folder = folder
        self.rounds = rounds
        self.children: dict[str, Child] = {}

    def start(self, name: str) -> None:
        words = ["-m", "tests.dnc.writer", self.database, str(self.claims), name, str(self.rounds)]
        self.children[name] = start([sys.executable, *words], self.folder / f"{name}.log", ROOT)

    def running(self) -> list[str]:
        return [name for name, child in self.children.items() if child.process.poll() is None]

    async def finish(self) -> None:
        await eventually(lambda: not self.running(), patience=240)
        for name, child in self.children.items():
            assert child.process.returncode == 0, f"{name}:\n{child.tail()}"


@contextmanager
def crowd(database: str, folder: Path, rounds: int) -> Iterator[Crowd]:
    writers = Crowd(database, folder, rounds)
    try:
        yield writers
    finally:
        for child in writers.children.values():
            child.kill()


async def declare(database: str) -> None:
    """61 addresses for eight primaries and targets of up to 11: never enough for all."""
    dnc = SqlAllocator(await open_database(database))
    await dnc.ensure_subnet(Declaration(SUBNET, "10.0.0.0/26"))
    await dnc.close()


async def check(database: str, claims: Path) -> None:
    opened = await open_database(database)
    try:
        await audit(opened)
        ncs = await SqlAllocator(opened).ncs(CLUSTER)
        held = [address for nc in ncs for address in (nc.primary, *(ip.address for ip in nc.secondary))]
        assert len(held) == len(set(held))
        assert set(held) == {path.name for path in claims.iterdir()}
    finally:
        await opened.close()


@pytest.mark.postgres
async def test_eight_writers_never_get_one_ip_twice(postgres: Postgres, tmp_path: Path) -> None:
    database = postgres.new_database()
    await declare(database)
    with crowd(database, tmp_path, rounds=60) as writers:
        for name in WRITERS:
            writers.start(name)
        await writers.finish()
        await check(database, writers.claims)


@pytest.mark.postgres
async def test_writers_killed_in_the_middle_lose_and_double_nothing(
    postgres: Postgres, tmp_path: Path
) -> None:
    database = postgres.new_database()
    await declare(database)
    with crowd(database, tmp_path, rounds=60) as writers:
        for name in WRITERS:
            writers.start(name)
        for name in (*WRITERS[:3], *WRITERS[:2]):
            # It holds its primary: so it is past the start and in its rounds.
            await eventually(lambda who=name: who in holders(writers.claims))  # type: ignore[misc]
            writers.children[name].kill()
            writers.start(name)
        await writers.finish()
        await check(database, writers.claims)


def holders(claims: Path) -> set[str]:
    found = set()
    for path in claims.iterdir():
        try:
            found.add(path.read_text())
        except FileNotFoundError:
            continue
    return found


async def test_two_processes_may_share_an_sqlite_file(tmp_path: Path) -> None:
    database = f"sqlite:{tmp_path / 'dnc.db'}"
    await declare(database)
    with crowd(database, tmp_path, rounds=15) as writers:
        for name in WRITERS[:2]:
            writers.start(name)
        await writers.finish()
        await check(database, writers.claims)


@pytest.mark.postgres
async def test_processes_that_start_together_migrate_once(postgres: Postgres) -> None:
    url = postgres.new_database()
    opened = await asyncio.gather(*(open_database(url) for _ in range(5)))
    for database in opened:
        await audit(database)
        await database.close()

"""Allocators for these tests: the same tests run on SQLite, and, marked, on PostgreSQL."""

from collections.abc import AsyncIterator, Iterator

import pytest

from subnetes.dnc.postgres import open_postgres
from subnetes.dnc.sql import Database
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from tests.harness.postgres import Postgres, running_postgres


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    opened: Database
    if request.param == "sqlite":
        opened = await open_sqlite()
    else:
        opened = await open_postgres(request.getfixturevalue("postgres").new_database())
    yield opened
    await opened.close()


@pytest.fixture
def dnc(database: Database, clock: Clock) -> SqlAllocator:
    return SqlAllocator(database, clock)

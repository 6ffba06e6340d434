"""PostgreSQL as DNC's database, when several clusters share it, or several processes of `subnetes dnc`.

Transactions are READ COMMITTED: whoever changes a subnet's addresses holds its row first, so what is read
after that is current. A transaction that lost (a deadlock, a name taken by a concurrent one) starts over.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import asyncpg

from subnetes.dnc.errors import Broken, Unavailable
from subnetes.dnc.sql import Row, T, Transaction, TryAgain, migrate

_ATTEMPTS = 10
_PAUSE = 0.02  # seconds, growing; at random, so that two who met do not meet again
_MIGRATING = 0x5B6E  # the advisory lock of processes that start together
_LOST = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    TryAgain,
)
_AWAY = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


async def open_postgres(url: str, connections: int = 8, timeout: float = 30.0) -> "Postgres":
    """Connected and migrated."""
    try:
        pool = await asyncpg.create_pool(
            url, min_size=1, max_size=connections, timeout=timeout, command_timeout=timeout
        )
    except (*_AWAY, ValueError) as problem:
        raise Unavailable(f"cannot connect to the PostgreSQL database: {_text(problem)}") from problem
    database = Postgres(pool, timeout)
    try:
        await migrate(database)
    except BaseException:
        await database.close()
        raise
    return database


class Postgres:
    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", timeout: float) -> None:
        self._pool = pool
        self._timeout = timeout

    async def transaction(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._once(work)
            except asyncpg.UniqueViolationError as problem:
                # Most often a name that a concurrent transaction took first: the next try sees it.
                if attempt == _ATTEMPTS:
                    raise _broken(problem) from problem
            except _LOST as problem:
                if attempt == _ATTEMPTS:
                    raise Unavailable("the record kept changing under a transaction; try again") from problem
            except asyncpg.IntegrityConstraintViolationError as problem:
                raise _broken(problem) from problem
            except _AWAY as problem:
                raise Unavailable(f"the PostgreSQL database failed: {_text(problem)}") from problem
            await asyncio.sleep(random.uniform(0, _PAUSE * attempt))
        raise AssertionError("unreachable")

    async def close(self) -> None:
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except (TimeoutError, *_AWAY):
            self._pool.terminate()

    async def _once(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with (
            self._pool.acquire(timeout=self._timeout) as connection,
            connection.transaction(isolation="read_committed"),
        ):
            return await work(_Transaction(connection))


class _Transaction:
    hold = " FOR UPDATE"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        rows: list[Row] = await self._connection.fetch(statement, *values)
        return rows

    async def execute(self, statement: str, *values: object) -> int:
        tag: str = await self._connection.execute(statement, *values)
        return int(tag.rsplit(" ", 1)[-1]) if tag[-1:].isdigit() else 0

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        await self._connection.executemany(statement, list(rows))

    async def script(self, text: str) -> None:
        """Migrations only: one process at a time, even before there is a table to hold."""
        await self._connection.execute(f"SELECT pg_advisory_xact_lock({_MIGRATING})")
        await self._connection.execute(text)


def _broken(problem: Exception) -> Broken:
    return Broken(f"the database refused a change that must never happen: {problem}")


def _text(problem: BaseException) -> str:
    return str(problem) or type(problem).__name__

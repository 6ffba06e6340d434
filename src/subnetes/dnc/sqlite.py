"""SQLite as DNC's database: in memory in the controller's process, or a file of `subnetes dnc`.

Calls are synchronous: a transaction takes some hundred microseconds, less than handing each statement to
another thread would. In memory nothing is durable, and need not be: for one cluster, etcd is the record. A
file is the record itself, so each commit is fsynced (`synchronous=FULL`).

SQLite's own `:memory:` keeps every page in its cache, and walks it at the end of a transaction. As a file of
its `memdb` file system, the record costs a transaction what that touches; it may grow to a gigabyte, some
millions of IPs.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from subnetes.dnc.errors import Broken, Unavailable
from subnetes.dnc.sql import Row, T, Transaction, TryAgain, migrate

MEMORY = ":memory:"
_CACHE_KIB = 8 << 10  # what does not fit is copied from the file
_BUSY_SECONDS = 5.0  # how long another process may hold the file
_ATTEMPTS = 10


async def open_sqlite(path: Path | str = MEMORY) -> "Sqlite":
    """Opened and migrated."""
    database = Sqlite(path)
    try:
        await migrate(database)
    except BaseException:
        await database.close()
        raise
    return database


class Sqlite:
    def __init__(self, path: Path | str) -> None:
        self._path = str(path)
        self._lock = asyncio.Lock()
        try:
            if self._path == MEMORY:
                self._connection = sqlite3.connect("file:dnc?vfs=memdb", uri=True, isolation_level=None)
                pragmas = ["journal_mode=MEMORY", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}"]
            else:
                _private(Path(self._path))
                self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=_BUSY_SECONDS)
                pragmas = ["journal_mode=WAL", "synchronous=FULL"]
            for pragma in (*pragmas, "foreign_keys=ON"):
                self._connection.execute(f"PRAGMA {pragma}")
        except (sqlite3.Error, OSError) as problem:
            raise Unavailable(f"cannot open the database {self._path}: {problem}") from problem

    async def transaction(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        async with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    return await self._once(work)
                except TryAgain:
                    continue
            raise Unavailable("the record kept changing under a transaction; try again")

    async def close(self) -> None:
        self._connection.close()

    async def _once(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = await work(_Transaction(self._connection))
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as problem:
            raise Broken(f"the database refused a change that must never happen: {problem}") from problem
        except sqlite3.Error as problem:
            raise Unavailable(f"the database {self._path} failed: {problem}") from problem
        return result


class _Transaction:
    hold = ""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        return self._connection.execute(statement, _named(values)).fetchall()

    async def execute(self, statement: str, *values: object) -> int:
        return self._connection.execute(statement, _named(values)).rowcount

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        self._connection.executemany(statement, map(_named, rows))

    async def script(self, text: str) -> None:
        # `executescript` would commit first. No statement of ours has a semicolon inside.
        for statement in _statements(text):
            self._connection.execute(statement)


def _named(values: Sequence[object]) -> dict[str, object]:
    return {str(number): value for number, value in enumerate(values, start=1)}


def _statements(text: str) -> list[str]:
    bare = "\n".join(line.split("--")[0] for line in text.splitlines())
    return [statement for statement in bare.split(";") if statement.strip()]


def _private(path: Path) -> None:
    """SQLite would let the umask decide who reads the file and its journal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)

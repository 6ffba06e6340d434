"""The little that DNC needs of a database, so that SQLite and PostgreSQL can both be it.

One text of each statement serves both: placeholders are `$1`, `$2`, ... The only difference is how a row is
held until the end of a transaction: PostgreSQL wants `FOR UPDATE` (`Transaction.hold`), SQLite has one writer
at a time anyway.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import resources
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Row = Sequence[Any]

_VERSIONS = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY)"


class Transaction(Protocol):
    hold: str  # ends a SELECT whose rows nobody else may change or hold until the transaction ends

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]: ...

    async def execute(self, statement: str, *values: object) -> int:
        """How many rows it touched."""

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None: ...

    async def script(self, text: str) -> None:
        """Several statements without values, part of the transaction."""


class Database(Protocol):
    async def transaction(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run the work in one transaction: all of it happens, or nothing if it raises.

        The work runs again from its start when another transaction was in the way, so it must have no effects
        but its statements. Unavailable: the database does not answer. Broken: a constraint refused it.
        """

    async def close(self) -> None: ...


class TryAgain(Exception):
    """Raised by the work: what it found was changed by another transaction just now."""


async def migrate(database: Database) -> int:
    """Bring the schema up to date; its version. Safe when several processes start at once."""

    async def work(tx: Transaction) -> int:
        await tx.script(_VERSIONS)
        rows = await tx.fetch("SELECT version FROM schema_version ORDER BY version")
        done = {row[0] for row in rows}
        for version, text in migrations():
            if version not in done:
                await tx.script(text)
                await tx.execute("INSERT INTO schema_version (version) VALUES ($1)", version)
                done.add(version)
        return int(max(done))

    return await database.transaction(work)


def migrations() -> list[tuple[int, str]]:
    """Number and text of each, in order."""
    folder = resources.files("subnetes.dnc") / "migrations"
    files = sorted(
        (each for each in folder.iterdir() if each.name.endswith(".sql")), key=lambda each: each.name
    )
    return [(int(each.name.split("-")[0]), each.read_text(encoding="utf-8")) for each in files]


def numbered(first: int, count: int) -> str:
    """`$2, $3, $4` for the values of an IN."""
    return ", ".join(f"${number}" for number in range(first, first + count))

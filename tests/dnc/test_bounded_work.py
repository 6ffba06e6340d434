"""What a grant costs does not depend on the subnet's size or on how full it is."""

from collections.abc import Awaitable, Callable, Iterable, Sequence

import pytest

from subnetes.dnc.sql import Row, T, Transaction
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import Sqlite, open_sqlite
from subnetes.dnc.types import AdoptedNC, Declaration, Fence, SecondaryIP, SubnetKey
from tests.harness.audit import audit

A = SubnetKey("", "a", 4)


class Counting:
    """A database that counts the rows that its statements return and change."""

    def __init__(self, inner: Sqlite) -> None:
        self.inner = inner
        self.rows = 0
        self.statements = 0

    async def transaction(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.inner.transaction(lambda tx: work(CountingTransaction(self, tx)))

    async def close(self) -> None:
        await self.inner.close()


class CountingTransaction:
    hold = ""

    def __init__(self, counts: Counting, tx: Transaction) -> None:
        self.counts = counts
        self.tx = tx

    async def fetch(self, statement: str, *values: object) -> Sequence[Row]:
        rows = await self.tx.fetch(statement, *values)
        self.counts.rows += len(rows)
        self.counts.statements += 1
        return rows

    async def execute(self, statement: str, *values: object) -> int:
        touched = await self.tx.execute(statement, *values)
        self.counts.rows += touched
        self.counts.statements += 1
        return touched

    async def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        listed = list(rows)
        self.counts.rows += len(listed)
        self.counts.statements += 1
        await self.tx.execute_many(statement, listed)

    async def script(self, text: str) -> None:
        await self.tx.script(text)


async def cost_of_sixteen(cidr: str, already: int) -> tuple[int, int]:
    """Rows and statements of a batch of 16 where so many are held by others."""
    counting = Counting(await open_sqlite())
    dnc = SqlAllocator(counting)
    await dnc.ensure_subnet(Declaration(A, cidr))
    if already:
        filler = await dnc.ensure_nc("c", "filler", A)
        await dnc.set_secondary("c", filler.id, Fence("u", 1), already, [])
    nc = await dnc.ensure_nc("c", "n", A)
    counting.rows = counting.statements = 0
    result = await dnc.set_secondary("c", nc.id, Fence("u", 1), 16, [])
    assert len(result.nc.secondary) == 16
    cost = counting.rows, counting.statements
    await audit(counting)
    await dnc.close()
    return cost


@pytest.mark.parametrize(
    ("cidr", "already"), [("10.0.0.0/16", 0), ("10.0.0.0/8", 0), ("10.0.0.0/8", 4000), ("10.0.0.0/8", 12_000)]
)
async def test_a_batch_touches_as_much_of_a_large_full_subnet_as_of_a_small_empty_one(
    cidr: str, already: int
) -> None:
    assert await cost_of_sixteen(cidr, already) == await cost_of_sixteen("10.0.0.0/24", 0)


async def test_the_next_page_with_room_is_found_by_index() -> None:
    database = await open_sqlite()

    async def plan(tx: Transaction) -> Sequence[Row]:
        return await tx.fetch(
            """EXPLAIN QUERY PLAN SELECT number, used FROM pages
               WHERE subnet = $1 AND number >= $2 AND room > 0 ORDER BY number LIMIT 1""",
            "s",
            b"",
        )

    (step,) = await database.transaction(plan)
    assert "USING INDEX pages_with_room (subnet=? AND number>?)" in step[3]
    await database.close()


async def test_full_pages_are_passed_over_and_found_again_when_something_comes_free() -> None:
    database = await open_sqlite()
    dnc = SqlAllocator(database)
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/18", None, ("10.0.16.0/20",)))  # the second page never
    nc = await dnc.ensure_nc("c", "n", A)
    full = (await dnc.set_secondary("c", nc.id, Fence("u", 1), 3 * 4096, [])).nc
    assert len(full.secondary) == 3 * 4096 - 4
    old = next(ip for ip in full.secondary if ip.address == "10.0.47.255")
    await dnc.set_secondary("c", nc.id, Fence("u", 2), 3 * 4096, [old.id])
    assert await dnc.confirm("c", nc.id, [old.id]) == 1
    again = (await dnc.set_secondary("c", nc.id, Fence("u", 2), 3 * 4096, [old.id])).nc
    assert {ip.address for ip in again.secondary} == {ip.address for ip in full.secondary}
    assert old.id not in {ip.id for ip in again.secondary}
    await audit(database)
    await dnc.close()


async def test_a_page_between_a_full_one_and_a_begun_one_is_not_passed_over() -> None:
    database = await open_sqlite()
    dnc = SqlAllocator(database)
    exclude = ("10.0.0.4-10.0.15.255", "10.0.16.2-10.0.31.255", "10.0.32.2-10.0.63.255")
    await dnc.ensure_subnet(Declaration(A, "10.0.0.0/18", None, exclude))
    ips = (SecondaryIP("i", "10.0.0.3"), SecondaryIP("j", "10.0.32.0"))
    shown = AdoptedNC("one", "n", A, "10.0.0.0/18", "10.0.0.1", "10.0.0.2", 1, ips)
    assert await dnc.adopt("c", [shown]) == ()
    assert (await dnc.ensure_nc("c", "m", A)).primary == "10.0.16.0"
    await audit(database)
    await dnc.close()

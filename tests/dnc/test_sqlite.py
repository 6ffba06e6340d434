"""The record in memory: each its own, and a transaction that fails leaves nothing."""

import pytest

from subnetes.dnc.errors import SubnetUnknown
from subnetes.dnc.sql import Transaction
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.dnc.types import Declaration, SubnetKey

A = SubnetKey("", "a", 4)
ADD = "INSERT INTO networks (id) VALUES ($1)"
ALL = "SELECT id FROM networks"


async def test_two_records_in_one_process_know_nothing_of_each_other() -> None:
    one, other = SqlAllocator(await open_sqlite()), SqlAllocator(await open_sqlite())
    await one.ensure_subnet(Declaration(A, "10.0.0.0/28"))
    assert (await one.utilization(A)).capacity
    with pytest.raises(SubnetUnknown):
        await other.utilization(A)
    await one.close()
    await other.close()


async def test_what_a_failed_transaction_wrote_is_gone() -> None:
    database = await open_sqlite()

    async def add(tx: Transaction) -> None:
        await tx.execute(ADD, "kept")

    async def fail(tx: Transaction) -> None:
        for number in range(10_000):  # more pages than one
            await tx.execute(ADD, f"{number:0200}")
        raise RuntimeError("in the middle")

    await database.transaction(add)
    with pytest.raises(RuntimeError):
        await database.transaction(fail)
    found = await database.transaction(lambda tx: tx.fetch(ALL))
    assert [row[0] for row in found] == ["kept"]
    await database.close()

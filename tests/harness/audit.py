"""DNC's tables compared with each other: what the bitmaps, the counters and the rows say must be the same."""

from __future__ import annotations

from subnetes.dnc import records
from subnetes.dnc.layout import bits_of
from subnetes.dnc.pages import Pages
from subnetes.dnc.records import SubnetRecord
from subnetes.dnc.sql import Database, Transaction


async def audit(database: Database) -> None:
    """AssertionError, with what differs."""

    async def work(tx: Transaction) -> None:
        for record in await records.all_records(tx):
            await _audit_subnet(tx, record)

    await database.transaction(work)


async def _audit_subnet(tx: Transaction, record: SubnetRecord) -> None:
    layout = record.layout
    rows = await tx.fetch("SELECT address FROM ips WHERE subnet = $1", record.id)
    held = {row[0] for row in rows}
    pages = dict(await Pages(tx, record).all())
    marked = {layout.address(page, bit) for page, used in pages.items() for bit in bits_of(used)}
    assert marked == held, f"{record.key}: only in pages {marked - held}, only in rows {held - marked}"
    assert record.reserved == len(held)
    barred = {each for each in held if not layout.space.may_give(layout.space.offset(each))}
    assert record.barred == len(barred)
    rooms = await tx.fetch("SELECT number, room FROM pages WHERE subnet = $1", record.id)
    for number, room in rooms:
        page = int.from_bytes(number, "big")
        assert room == layout.room(page, pages[page])
        after = layout.next_open(page + 1)
        assert room or after is None or after in pages, f"{record.key}: nothing follows the full page {page}"
    primaries = await tx.fetch(
        """SELECT ncs.id FROM ncs JOIN ips ON ips.nc = ncs.id AND ips.id = ''
           WHERE ncs.subnet = $1 AND ips.address <> ncs.primary_address""",
        record.id,
    )
    assert not primaries

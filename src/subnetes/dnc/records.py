"""A subnet's row: read, held, written back. Whoever changes addresses of a subnet holds its row first.

Locks are taken in one order, networks before subnets, both sorted, so that transactions rarely meet head-on.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from subnetes.dnc.layout import Layout, layout_of
from subnetes.dnc.sql import Row, Transaction, TryAgain
from subnetes.dnc.types import Subnet, SubnetKey, Utilization

_COLUMNS = (
    "id, network, name, family, cidr, gateway, exclude, declared, reserved, barred, next_address, next_turn"
)
_WIDTH = 16  # bytes of an address or a page's number, so that bytes sort as numbers do


@dataclass(slots=True)
class SubnetRecord:
    id: str
    key: SubnetKey
    cidr: str
    gateway: str | None
    exclude: tuple[str, ...]
    declared: bool
    reserved: int = 0
    barred: int = 0
    next_address: int = 0
    next_turn: int = 1

    @property
    def layout(self) -> Layout:
        return layout_of(self.cidr, self.gateway, self.exclude)

    @property
    def free(self) -> int:
        return self.layout.space.capacity - (self.reserved - self.barred)

    def utilization(self, now: float) -> Utilization:
        return Utilization(int(now), self.layout.space.capacity, self.reserved, self.free)

    def shown(self, now: float) -> Subnet:
        gateway = self.layout.space.gateway
        return Subnet(self.key, self.cidr, gateway, self.exclude, self.declared, self.utilization(now))


def number(value: int) -> bytes:
    return value.to_bytes(_WIDTH, "big")


def from_row(row: Row) -> SubnetRecord:
    return SubnetRecord(
        id=row[0],
        key=SubnetKey(row[1], row[2], row[3]),
        cidr=row[4],
        gateway=row[5],
        exclude=msgspec.json.decode(row[6], type=tuple[str, ...]),
        declared=bool(row[7]),
        reserved=row[8],
        barred=row[9],
        next_address=int.from_bytes(row[10], "big"),
        next_turn=row[11],
    )


async def hold_network(tx: Transaction, network: str) -> None:
    """Until the end of the transaction nobody else adds a subnet to it or changes one's extent."""
    await tx.execute("INSERT INTO networks (id) VALUES ($1) ON CONFLICT DO NOTHING", network)
    await tx.fetch(f"SELECT id FROM networks WHERE id = $1{tx.hold}", network)


async def find(tx: Transaction, key: SubnetKey) -> SubnetRecord | None:
    """As it stands, for reading only."""
    return _one(await tx.fetch(_BY_KEY, key.network, key.name, key.family))


async def hold(tx: Transaction, key: SubnetKey) -> SubnetRecord | None:
    return _one(await tx.fetch(_BY_KEY + tx.hold, key.network, key.name, key.family))


async def hold_by_id(tx: Transaction, subnet_id: str) -> SubnetRecord:
    """TryAgain: it went away between its being read somewhere and now."""
    rows = await tx.fetch(f"SELECT {_COLUMNS} FROM subnets WHERE id = $1{tx.hold}", subnet_id)
    record = _one(rows)
    if record is None:
        raise TryAgain
    return record


async def all_records(tx: Transaction, network: str | None = None) -> list[SubnetRecord]:
    if network is None:
        rows = await tx.fetch(f"SELECT {_COLUMNS} FROM subnets")
    else:
        rows = await tx.fetch(f"SELECT {_COLUMNS} FROM subnets WHERE network = $1", network)
    return sorted(map(from_row, rows), key=lambda record: record.key)


async def insert(tx: Transaction, record: SubnetRecord) -> None:
    await tx.execute(
        f"INSERT INTO subnets ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        record.id,
        record.key.network,
        record.key.name,
        record.key.family,
        *_values(record),
    )


async def save(tx: Transaction, record: SubnetRecord) -> None:
    await tx.execute(_UPDATE, record.id, *_values(record))


async def count(tx: Transaction, record: SubnetRecord) -> None:
    """Save what grants and releases change."""
    counters = (record.reserved, record.barred, number(record.next_address), record.next_turn)
    await tx.execute(_COUNT, record.id, *counters)


async def delete(tx: Transaction, record: SubnetRecord) -> None:
    await tx.execute("DELETE FROM subnets WHERE id = $1", record.id)


def overlapping(record: SubnetRecord, others: Iterable[SubnetRecord]) -> SubnetRecord | None:
    space = record.layout.space
    return next((each for each in others if each.id != record.id and each.layout.space.overlaps(space)), None)


_BY_KEY = f"SELECT {_COLUMNS} FROM subnets WHERE network = $1 AND name = $2 AND family = $3"
_UPDATE = """UPDATE subnets SET cidr = $2, gateway = $3, exclude = $4, declared = $5,
             reserved = $6, barred = $7, next_address = $8, next_turn = $9 WHERE id = $1"""
_COUNT = "UPDATE subnets SET reserved = $2, barred = $3, next_address = $4, next_turn = $5 WHERE id = $1"


def _one(rows: Iterable[Row]) -> SubnetRecord | None:
    return next(map(from_row, rows), None)


def _values(record: SubnetRecord) -> tuple[object, ...]:
    return (
        record.cidr,
        record.gateway,
        msgspec.json.encode(record.exclude).decode(),
        int(record.declared),
        record.reserved,
        record.barred,
        number(record.next_address),
        record.next_turn,
    )

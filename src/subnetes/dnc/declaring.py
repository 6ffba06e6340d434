"""Subnets as they are declared: made, grown, changed, deleted; refused if that takes held addresses."""

from collections.abc import Callable, Sequence
from itertools import islice

from subnetes.dnc import containers, records
from subnetes.dnc.errors import SubnetInUse, SubnetInvalid, SubnetOverlaps
from subnetes.dnc.layout import Layout, bits_of, layout_of
from subnetes.dnc.pages import Pages
from subnetes.dnc.records import SubnetRecord
from subnetes.dnc.sql import Transaction
from subnetes.dnc.types import Declaration, SubnetKey
from subnetes.ipam.addresses import InvalidSubnet

_SHOWN = 3  # of what is in use, in a message


def checked(declaration: Declaration) -> Layout:
    """SubnetInvalid, with what is wrong."""
    try:
        layout = layout_of(declaration.cidr, declaration.gateway, declaration.exclude)
    except InvalidSubnet as problem:
        raise SubnetInvalid(f"subnet {declaration.key}: {problem}") from problem
    if layout.space.family != declaration.key.family:
        raise SubnetInvalid(
            f"subnet {declaration.key}: {declaration.cidr} is an IPv{layout.space.family} network"
        )
    return layout


async def declare(tx: Transaction, declaration: Declaration, new_id: str) -> SubnetRecord:
    """Make the record be as declared."""
    layout = checked(declaration)
    await records.hold_network(tx, declaration.key.network)
    old = await records.hold(tx, declaration.key)
    new = _record(declaration, layout, old, new_id)
    if new == old:
        return old
    _refuse_overlap(new, await records.all_records(tx, declaration.key.network))
    if old is None:
        await records.insert(tx, new)
        return new
    pages = await Pages(tx, old).all()
    _refuse_loss(old, new, pages)
    await Pages(tx, new).recount(pages)
    await _claim_disputed(tx, new)
    await records.save(tx, new)
    return new


async def _claim_disputed(tx: Transaction, record: SubnetRecord) -> None:
    """What NCs show and was outside so far is theirs once the subnet reaches it: nobody else may get it."""
    inside = [each for each in await containers.disputed_in(tx, record.id) if record.layout.has(each)]
    owned = await containers.owners(tx, record.id, inside)
    claimed = await containers.bequeath(tx, record.id, [each for each in inside if each not in owned])
    await Pages(tx, record).claim(claimed)


async def withdraw(tx: Transaction, key: SubnetKey) -> None:
    record = await records.hold(tx, key)
    if record is None:
        return
    rows = await tx.fetch(f"SELECT id FROM ncs WHERE subnet = $1 LIMIT {_SHOWN + 1}", record.id)
    if rows:
        raise SubnetInUse(
            f"subnet {key} cannot be deleted: {record.reserved} of its addresses are in use, by network"
            f" containers such as {_some([row[0] for row in rows])}; drain them first"
        )
    await records.delete(tx, record)


def _record(declaration: Declaration, layout: Layout, old: SubnetRecord | None, new_id: str) -> SubnetRecord:
    return SubnetRecord(
        id=old.id if old else new_id,
        key=declaration.key,
        cidr=layout.space.cidr,
        gateway=declaration.gateway,
        exclude=declaration.exclude,
        declared=True,
        reserved=old.reserved if old else 0,
        barred=old.barred if old else 0,
        next_address=old.next_address if old else layout.base,
        next_turn=old.next_turn if old else 1,
    )


def _refuse_overlap(record: SubnetRecord, others: Sequence[SubnetRecord]) -> None:
    other = records.overlapping(record, others)
    if other is not None:
        raise SubnetOverlaps(
            f"subnet {record.key}: {record.cidr} overlaps {other.cidr} of subnet {other.key}"
            " in the same network; choose another range or another network"
        )


def _refuse_loss(old: SubnetRecord, new: SubnetRecord, pages: Sequence[tuple[int, int]]) -> None:
    lost = _held(old, pages, lambda page: ~new.layout.inside(page))
    if lost:
        raise SubnetInUse(
            f"subnet {new.key} cannot become {new.cidr}: addresses outside of it are in use,"
            f" such as {_some(lost)}",
            addresses=lost,
        )
    # Nobody said yet what is excluded from an undeclared subnet: its NCs keep what they have.
    barred = (
        _held(old, pages, lambda page: new.layout.barred(page) & ~old.layout.barred(page))
        if old.declared
        else []
    )
    if barred:
        raise SubnetInUse(
            f"subnet {new.key} cannot reserve or exclude addresses in use, such as {_some(barred)}",
            addresses=barred,
        )


def _held(record: SubnetRecord, pages: Sequence[tuple[int, int]], which: Callable[[int], int]) -> list[str]:
    """The first few held addresses among those that are meant."""
    found = (
        record.layout.address(page, bit)
        for page, used in sorted(pages)
        for bit in bits_of(used & which(page))
    )
    return list(islice(found, _SHOWN + 1))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")

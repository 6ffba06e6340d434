"""NCs and what they hold, as rows: read, added, taken away. Who writes holds the subnet's row."""

import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from subnetes.dnc.layout import layout_of
from subnetes.dnc.records import from_row as subnet_from_row
from subnetes.dnc.sql import Row, Transaction, numbered
from subnetes.dnc.types import NC, SecondaryIP

CHUNK = 500  # values in one IN

Owner = tuple[str, str, str]  # an NC, its cluster, and the id under which it holds an address
Held = dict[str, list[SecondaryIP]]  # NC id -> what it has; a primary's id is empty


@dataclass(frozen=True, slots=True)
class NCRecord:
    id: str
    cluster: str
    node: str
    subnet_id: str
    primary: str
    version: int = 0
    target: int = 0
    fence_version: int = 0
    shown_as: str = ""


async def find(tx: Transaction, nc_id: str) -> NCRecord | None:
    rows = await tx.fetch(
        """SELECT id, cluster, node, subnet, primary_address, version, target, fence_version, shown_as
           FROM ncs WHERE id = $1""",
        nc_id,
    )
    return NCRecord(*rows[0]) if rows else None


async def of_node(tx: Transaction, subnet_id: str, cluster: str, node: str) -> str | None:
    """The id of the node's NC in the subnet. An adopted node may have several there: then always the same."""
    statement = "SELECT id FROM ncs WHERE subnet = $1 AND cluster = $2 AND node = $3 AND shown_as = ''"
    rows = await tx.fetch(statement, subnet_id, cluster, node)
    return min((row[0] for row in rows), default=None)


async def standing_in(tx: Transaction, cluster: str, node: str, shown_as: str) -> NCRecord | None:
    """What keeps the addresses that a node's NNC shows under an id that is another NC's."""
    statement = "SELECT id FROM ncs WHERE cluster = $1 AND node = $2 AND shown_as = $3"
    rows = await tx.fetch(statement, cluster, node, shown_as)
    return await find(tx, rows[0][0]) if rows else None


async def insert(tx: Transaction, nc: NCRecord) -> None:
    await tx.execute(
        """INSERT INTO ncs
           (id, cluster, node, subnet, primary_address, version, target, fence_uid, fence_version, shown_as)
           VALUES ($1, $2, $3, $4, $5, $6, $7, '', 0, $8)""",
        nc.id,
        nc.cluster,
        nc.node,
        nc.subnet_id,
        nc.primary,
        nc.version,
        nc.target,
        nc.shown_as,
    )


async def add(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    rows = [(nc.subnet_id, ip.address, nc.id, ip.id) for ip in ips]
    if rows:
        await tx.execute_many(_ADD, rows)


async def leave(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    """They are the NC's no longer, and nobody's yet."""
    rows = [(nc.id, ip.id) for ip in ips]
    if rows:
        await tx.execute_many("UPDATE ips SET leaving = 1 WHERE nc = $1 AND id = $2", rows)


async def stay(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    """They are the NC's, also if they were leaving."""
    rows = [(nc.id, ip.id) for ip in ips]
    if rows:
        statement = "UPDATE ips SET leaving = 0 WHERE nc = $1 AND id = $2 AND leaving = 1"
        await tx.execute_many(statement, rows)


async def remove(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    rows = [(nc.id, ip.id) for ip in ips]
    if rows:
        await tx.execute_many("DELETE FROM ips WHERE nc = $1 AND id = $2", rows)


async def add_conflicts(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    rows = [(nc.id, ip.id, ip.address) for ip in ips]
    statement = "INSERT INTO conflicts (nc, id, address) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    if rows:
        await tx.execute_many(statement, rows)


async def remove_conflicts(tx: Transaction, nc: NCRecord, ips: Iterable[SecondaryIP]) -> None:
    rows = [(nc.id, ip.id, ip.address) for ip in ips]
    if rows:
        statement = "DELETE FROM conflicts WHERE nc = $1 AND id = $2 AND address = $3"
        await tx.execute_many(statement, rows)


async def bequeath(tx: Transaction, subnet_id: str, addresses: Sequence[str]) -> set[str]:
    """Give addresses that their owner left to the NCs that show them too; those that were given."""
    heirs: dict[str, tuple[str, str]] = {}  # address -> NC and id
    for nc, ip_id, address in await _claimants(tx, subnet_id, addresses):
        if address not in heirs and (nc, ip_id) not in heirs.values():
            heirs[address] = (nc, ip_id)
    if heirs:
        await tx.execute_many(_ADD, [(subnet_id, address, *heir) for address, heir in heirs.items()])
        statement = "DELETE FROM conflicts WHERE nc = $1 AND id = $2 AND address = $3"
        await tx.execute_many(statement, [(*heir, address) for address, heir in heirs.items()])
    return set(heirs)


async def _claimants(tx: Transaction, subnet_id: str, addresses: Sequence[str]) -> list[Row]:
    """NC, id and address of each conflict about these, in one order whatever the database."""
    found: list[Row] = []
    for part in _chunks(addresses):
        statement = f"""SELECT conflicts.nc, conflicts.id, conflicts.address FROM conflicts
                        JOIN ncs ON ncs.id = conflicts.nc
                        LEFT JOIN ips ON ips.nc = conflicts.nc AND ips.id = conflicts.id
                        WHERE conflicts.address IN ({numbered(2, len(part))})
                        AND ncs.subnet = $1 AND ips.id IS NULL"""
        found += await tx.fetch(statement, subnet_id, *part)
    return sorted(found, key=tuple)


async def owned(tx: Transaction, nc_id: str) -> list[SecondaryIP]:
    """Also what is leaving, and the primary, with an empty id."""
    rows = await tx.fetch("SELECT id, address FROM ips WHERE nc = $1", nc_id)
    return [SecondaryIP(*row) for row in rows]


async def leaving(tx: Transaction, nc_id: str) -> list[SecondaryIP]:
    rows = await tx.fetch("SELECT id, address FROM ips WHERE nc = $1 AND leaving = 1", nc_id)
    return [SecondaryIP(*row) for row in rows]


async def conflicting(tx: Transaction, nc_id: str) -> list[SecondaryIP]:
    rows = await tx.fetch("SELECT id, address FROM conflicts WHERE nc = $1", nc_id)
    return [SecondaryIP(*row) for row in rows]


async def disputed_in(tx: Transaction, subnet_id: str) -> list[str]:
    """The addresses that NCs of the subnet show and do not own."""
    statement = """SELECT DISTINCT conflicts.address FROM conflicts JOIN ncs ON ncs.id = conflicts.nc
                   WHERE ncs.subnet = $1"""
    return [row[0] for row in await tx.fetch(statement, subnet_id)]


async def known_ids(tx: Transaction, ids: Sequence[str]) -> set[str]:
    """Which of these ids any NC holds."""
    found: set[str] = set()
    for part in _chunks(ids):
        among = numbered(1, len(part))
        for table in ("ips", "conflicts"):
            rows = await tx.fetch(f"SELECT id FROM {table} WHERE id IN ({among})", *part)
            found.update(row[0] for row in rows)
    return found


async def owners(tx: Transaction, subnet_id: str, addresses: Sequence[str]) -> dict[str, Owner]:
    found: dict[str, Owner] = {}
    for part in _chunks(addresses):
        statement = f"""SELECT ips.address, ips.nc, ncs.cluster, ips.id FROM ips JOIN ncs ON ncs.id = ips.nc
                        WHERE ips.subnet = $1 AND ips.address IN ({numbered(2, len(part))})"""
        for address, nc, cluster, ip_id in await tx.fetch(statement, subnet_id, *part):
            found[address] = (nc, cluster, ip_id)
    return found


async def shown(tx: Transaction, where: str, *values: object) -> list[NC]:
    """NCs with all that they have, sorted by node and id; `where` is a condition on `ncs`."""
    rows = await tx.fetch(f"{_NCS} WHERE {where}", *values)
    held: Held = {}
    going: Held = {}
    for table, leaves in (("ips", "ips.leaving"), ("conflicts", "0")):
        statement = f"""SELECT {table}.nc, {table}.id, {table}.address, {leaves} FROM {table}
                        JOIN ncs ON ncs.id = {table}.nc"""
        for nc, ip_id, address, left in await tx.fetch(f"{statement} WHERE {where}", *values):
            if ip_id:
                (going if left else held).setdefault(nc, []).append(SecondaryIP(ip_id, address))
    return sorted((_nc(row, held, going) for row in rows), key=lambda nc: (nc.node, nc.id))


_ADD = "INSERT INTO ips (subnet, address, nc, id, leaving) VALUES ($1, $2, $3, $4, 0)"


_NCS = """SELECT ncs.id, ncs.cluster, ncs.node, ncs.primary_address, ncs.version, ncs.target,
          ncs.shown_as, subnets.id, subnets.network, subnets.name, subnets.family, subnets.cidr,
          subnets.gateway, subnets.exclude, subnets.declared, subnets.reserved, subnets.barred,
          subnets.next_address, subnets.next_turn FROM ncs JOIN subnets ON subnets.id = ncs.subnet"""


def _nc(row: Row, held: Held, going: Held) -> NC:
    nc_id, cluster, node, primary, version, target, shown_as = row[:7]
    subnet = subnet_from_row(row[7:])
    secondary = tuple(sorted(held.get(nc_id, ()), key=_place))
    space = layout_of(subnet.cidr, subnet.gateway, subnet.exclude).space
    return NC(
        id=nc_id,
        cluster=cluster,
        node=node,
        subnet=subnet.key,
        primary=primary,
        version=version,
        secondary=secondary,
        target=target,
        waiting=max(0, target - len(secondary)),
        gateway=space.gateway,
        cidr=space.cidr,
        leaving=tuple(sorted(going.get(nc_id, ()), key=_place)),
        shown_as=shown_as,
    )


def _place(ip: SecondaryIP) -> tuple[bytes, str, str]:
    """Conflicts may be no addresses at all."""
    family = socket.AF_INET6 if ":" in ip.address else socket.AF_INET
    try:
        return socket.inet_pton(family, ip.address), ip.address, ip.id
    except OSError:
        return b"", ip.address, ip.id


def _chunks(values: Sequence[str]) -> list[Sequence[str]]:
    return [values[start : start + CHUNK] for start in range(0, len(values), CHUNK)]

"""NCs that NNCs show, taken into the record: of this control plane's earlier life, or of another's.

What an NNC shows may be in use by pods, so none of it may be granted to others. An address that cannot be the
NC's own (another has it, it is outside of the subnet) is a conflict: reported, kept in the NC's record until
the node lets go of its id, and never given by us. All of a call is one transaction.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from ipaddress import ip_address

from subnetes.dnc import containers, records
from subnetes.dnc.checks import is_sound
from subnetes.dnc.containers import NCRecord
from subnetes.dnc.granting import remove
from subnetes.dnc.layout import Layout, layout_of
from subnetes.dnc.pages import Pages
from subnetes.dnc.records import SubnetRecord
from subnetes.dnc.sql import Transaction
from subnetes.dnc.types import AdoptedNC, Conflict, SecondaryIP, SubnetKey
from subnetes.ipam.addresses import InvalidSubnet

Verdict = tuple[SecondaryIP, str | None, str]  # what, who owns it, why it is a conflict; empty: it is none


_UNFENCE = "UPDATE ncs SET fence_uid = '', fence_version = 0 WHERE id = $1"


class Adopting:
    def __init__(self, tx: Transaction, cluster: str, new_id: Callable[[], str]) -> None:
        self._tx = tx
        self._cluster = cluster
        self._new_id = new_id
        self._homes: dict[SubnetKey, SubnetRecord | None] = {}
        self._records: dict[str, SubnetRecord] = {}  # by id, each once: its counters change on the way

    async def adopt(self, ncs: Sequence[AdoptedNC]) -> list[Conflict]:
        sound = [_normal(nc) for nc in ncs if is_sound(nc)]
        conflicts = [_whole(nc, "its names or its version are malformed") for nc in ncs if not is_sound(nc)]
        await self._hold_homes(sound)
        for nc in sound:
            conflicts += await self._adopt(nc)
        for record in self._records.values():
            await records.count(self._tx, record)
        return conflicts

    async def _hold_homes(self, ncs: Sequence[AdoptedNC]) -> None:
        """The subnets of all NCs, in an order that every transaction keeps to."""
        shown = {nc.subnet: nc for nc in reversed(ncs)}
        for network in sorted({key.network for key in shown}):
            await records.hold_network(self._tx, network)
        for key in sorted(shown):
            record = await records.hold(self._tx, key) or await self._undeclared(shown[key])
            self._homes[key] = None if record is None else self._records.setdefault(record.id, record)

    async def _undeclared(self, nc: AdoptedNC) -> SubnetRecord | None:
        """A subnet that nobody declared, as its NC shows it; None: it shows none."""
        layout, gateway = _shown_layout(nc)
        if layout is None:
            return None
        record = SubnetRecord(self._new_id(), nc.subnet, layout.space.cidr, gateway, (), declared=False)
        other = records.overlapping(record, await records.all_records(self._tx, nc.subnet.network))
        if other is not None:  # its addresses are the other's too: there, at least, they must not be granted
            return self._records.get(other.id) or await records.hold_by_id(self._tx, other.id)
        record.next_address = layout.base
        await records.insert(self._tx, record)
        return record

    async def _adopt(self, nc: AdoptedNC) -> list[Conflict]:
        known = await containers.find(self._tx, nc.id)
        if known is not None and (known.cluster, known.node) == (self._cluster, nc.node):
            return await self._take_in(nc, known)
        stand_in = await containers.standing_in(self._tx, self._cluster, nc.node, nc.id)
        if known is not None:  # two NNCs show one id: the second one's addresses are kept all the same
            await self._take_in(nc, stand_in, shown_as=nc.id)
            return [_whole(nc, f"network container {nc.id} is on record for another node")]
        if stand_in is not None:
            await remove(self._tx, stand_in, await self._held(stand_in.subnet_id))  # it is needed no longer
        return await self._take_in(nc, None)

    async def _take_in(self, nc: AdoptedNC, known: NCRecord | None, shown_as: str = "") -> list[Conflict]:
        record = await self._home(nc, known)
        if record is None:
            return [_whole(nc, f"{nc.cidr!r} with gateway {nc.gateway!r} is no subnet to adopt it into")]
        if known is not None:  # a new reader, whose API server may have been restored: it counts from less
            await self._tx.execute(_UNFENCE, known.id)
        if known is not None and known.version > nc.version:
            return []  # the record is ahead of what was shown: what is missing here was let go
        own = known or NCRecord(
            id=self._new_id() if shown_as else nc.id,
            cluster=self._cluster,
            node=nc.node,
            subnet_id=record.id,
            primary=nc.primary,
            version=nc.version,
            target=len(nc.secondary),
            shown_as=shown_as,
        )
        if known is None:
            await containers.insert(self._tx, own)
        else:
            await self._renew(own, nc)
        elsewhere = _elsewhere(nc, record)
        return elsewhere + await self._adopt_ips(own, record, nc)

    async def _renew(self, own: NCRecord, nc: AdoptedNC) -> None:
        """It is shown again, perhaps with another primary than one that it never owned."""
        await self._tx.execute("UPDATE ncs SET version = $2 WHERE id = $1", own.id, nc.version)
        if all(ip.id for ip in await containers.owned(self._tx, own.id)):
            await self._tx.execute("UPDATE ncs SET primary_address = $2 WHERE id = $1", own.id, nc.primary)
            await self._tx.execute("DELETE FROM conflicts WHERE nc = $1 AND id = ''", own.id)

    async def _home(self, nc: AdoptedNC, known: NCRecord | None) -> SubnetRecord | None:
        home = self._homes[nc.subnet]
        if known is None or (home is not None and home.id == known.subnet_id):
            return home
        return await self._held(known.subnet_id)

    async def _held(self, subnet_id: str) -> SubnetRecord:
        held = self._records.get(subnet_id) or await records.hold_by_id(self._tx, subnet_id)
        return self._records.setdefault(held.id, held)

    async def _adopt_ips(self, own: NCRecord, record: SubnetRecord, nc: AdoptedNC) -> list[Conflict]:
        shown = [SecondaryIP("", nc.primary)] if nc.primary else []
        shown += nc.secondary
        verdicts = await self._judge(own, record, shown)
        mine = [ip for ip, _, why in verdicts if not why]
        already = set(await containers.owned(self._tx, own.id))
        new = [ip for ip in mine if ip not in already]
        await Pages(self._tx, record).claim(ip.address for ip in new)
        await containers.add(self._tx, own, new)
        await containers.stay(self._tx, own, mine)  # shown again, and not by a status behind the record
        await containers.remove_conflicts(self._tx, own, mine)
        disputed = [verdict for verdict in verdicts if verdict[2]]
        await containers.add_conflicts(self._tx, own, [ip for ip, _, _ in disputed])
        return [Conflict(ip.address, ip.id, nc.id, owner, why) for ip, owner, why in disputed]

    async def _judge(
        self, own: NCRecord, record: SubnetRecord, shown: Sequence[SecondaryIP]
    ) -> list[Verdict]:
        owners = await containers.owners(self._tx, record.id, [ip.address for ip in shown])
        addresses = {ip.id: ip.address for ip in await containers.owned(self._tx, own.id)}
        verdicts: list[Verdict] = []
        for ip in dict.fromkeys(shown):
            nc, cluster, held_as = owners.get(ip.address, (own.id, own.cluster, ip.id))
            owner = nc if cluster == own.cluster else None
            why = _outside(record.layout, ip.address)
            if not why and nc != own.id:
                why = "another network container has this address"
            elif not why and held_as != ip.id:
                why = f"the network container has this address under another id ({held_as or 'its primary'})"
            elif not why and addresses.setdefault(ip.id, ip.address) != ip.address:
                why = f"the network container has another address under this id ({addresses[ip.id]})"
            if not why:
                owners[ip.address] = (own.id, own.cluster, ip.id)
            verdicts.append((ip, owner if why and nc != own.id else None, why))
        return verdicts


def _shown_layout(nc: AdoptedNC) -> tuple[Layout | None, str | None]:
    """What an NC says of its subnet, without its gateway if that makes no sense."""
    for gateway in (nc.gateway or None, None):
        try:
            layout = layout_of(nc.cidr, gateway, ())
        except InvalidSubnet:
            continue
        return (layout, gateway) if layout.space.family == nc.subnet.family else (None, None)
    return None, None


def _elsewhere(nc: AdoptedNC, record: SubnetRecord) -> list[Conflict]:
    if record.key == nc.subnet:
        return []
    return [_whole(nc, f"subnet {nc.subnet} overlaps {record.key}, where it is recorded")]


def _whole(nc: AdoptedNC, why: str) -> Conflict:
    return Conflict("", "", nc.id, None, why)


def _outside(layout: Layout, address: str) -> str:
    return "" if layout.has(address) else f"the address is outside of {layout.space.cidr}"


def _normal(nc: AdoptedNC) -> AdoptedNC:
    """Addresses as we write them. One without an id, which nobody could release, is named after itself."""
    ips = tuple(SecondaryIP(ip.id or ip.address, _canonical(ip.address)) for ip in nc.secondary)
    return replace(nc, primary=_canonical(nc.primary), secondary=ips)


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address

"""NCs made, their IPs granted, taken out and freed, NCs deleted: the work of one transaction each."""

from collections.abc import Callable, Sequence

from subnetes.dnc import containers, records
from subnetes.dnc.containers import NCRecord
from subnetes.dnc.errors import NCUnknown, StaleReading, SubnetUnknown
from subnetes.dnc.pages import Pages
from subnetes.dnc.records import SubnetRecord
from subnetes.dnc.sql import Transaction
from subnetes.dnc.types import NC, Fence, SecondaryIP, SetResult, SubnetKey
from subnetes.dnc.waits import Asking, Waits


async def shown(tx: Transaction, cluster: str, nc_id: str) -> NC:
    found = await containers.shown(tx, "ncs.id = $1 AND ncs.cluster = $2", nc_id, cluster)
    if not found:
        raise unknown(cluster, nc_id)
    return found[0]


def unknown(cluster: str, nc_id: str) -> NCUnknown:
    return NCUnknown(f"cluster {cluster} has no network container {nc_id}")


async def free(tx: Transaction, nc: NCRecord, record: SubnetRecord, ips: Sequence[SecondaryIP]) -> int:
    """How many others may have now: what another NC shows too, a conflict so far, is that one's now."""
    await containers.remove(tx, nc, ips)
    inherited = await containers.bequeath(tx, record.id, [ip.address for ip in ips])
    left = [ip.address for ip in ips if ip.address not in inherited]
    await Pages(tx, record).free(left)
    return len(left)


async def remove(tx: Transaction, nc: NCRecord, record: SubnetRecord) -> int:
    """The NC and all that it has."""
    await tx.execute("DELETE FROM conflicts WHERE nc = $1", nc.id)
    freed = await free(tx, nc, record, await containers.owned(tx, nc.id))
    await tx.execute("DELETE FROM ncs WHERE id = $1", nc.id)
    return freed


class Granting:
    """What one transaction does to NCs, at one time."""

    def __init__(self, tx: Transaction, now: float, new_id: Callable[[], str]) -> None:
        self._tx = tx
        self._now = now
        self._new_id = new_id

    async def ensure_nc(self, who: Asking, key: SubnetKey) -> NC | None:
        """The node's NC; None: no address is left for it, and it waits now."""
        record = await records.hold(self._tx, key)
        found = await containers.of_node(self._tx, record.id, who.cluster, who.node) if record else None
        if found is not None:
            return await shown(self._tx, who.cluster, found)
        if record is None or not record.declared:
            raise SubnetUnknown(f"subnet {key} is not declared; declare it before nodes draw from it")
        waits = Waits(self._tx, record, self._now)
        granted = await waits.share(who, 1)
        await waits.record(who, 1 - granted)
        nc_id = await self._create(record, who) if granted else None
        await records.count(self._tx, record)
        return None if nc_id is None else await shown(self._tx, who.cluster, nc_id)

    async def set_secondary(
        self, cluster: str, nc_id: str, fence: Fence, target: int, released: set[str]
    ) -> SetResult:
        held = await self._hold(cluster, nc_id)
        if held is None:
            raise unknown(cluster, nc_id)
        nc, record = held
        if fence.resource_version < nc.fence_version:
            raise StaleReading(
                f"network container {nc_id}: resourceVersion {fence.resource_version} is older than"
                f" {nc.fence_version}, which was used before; read the NodeNetworkConfig again"
            )
        own, gone, kept = await self._release(nc, released)
        refused = await containers.known_ids(self._tx, sorted(released - own))
        granted = await self._grant(nc, record, target - kept)
        await self._tx.execute(_UPDATE, nc.id, target, int(bool(gone or granted)), *_fenced(fence))
        await records.count(self._tx, record)
        return SetResult(await shown(self._tx, cluster, nc_id), tuple(sorted(refused)))

    async def confirm(self, cluster: str, nc_id: str, ids: set[str]) -> int:
        held = await self._hold(cluster, nc_id)
        if held is None:
            return 0
        nc, record = held
        leaving = await containers.leaving(self._tx, nc.id)
        freed = await free(self._tx, nc, record, [ip for ip in leaving if ip.id in ids])
        await records.count(self._tx, record)
        return freed

    async def delete_nc(self, cluster: str, nc_id: str) -> int:
        held = await self._hold(cluster, nc_id)
        if held is None:
            return 0
        nc, record = held
        freed = await remove(self._tx, nc, record)
        await records.count(self._tx, record)
        if not record.declared and not await self._in_use(record):
            await records.delete(self._tx, record)
        return freed

    async def _hold(self, cluster: str, nc_id: str) -> tuple[NCRecord, SubnetRecord] | None:
        """The NC and its subnet's row. An NC's subnet never changes, so it can be read before it is held."""
        found = await containers.find(self._tx, nc_id)
        if found is None or found.cluster != cluster:
            return None
        record = await records.hold_by_id(self._tx, found.subnet_id)
        current = await containers.find(self._tx, nc_id)
        return None if current is None else (current, record)

    async def _create(self, record: SubnetRecord, who: Asking) -> str:
        (primary,) = await Pages(self._tx, record).allocate(1)
        nc = NCRecord(self._new_id(), who.cluster, who.node, record.id, primary)
        await containers.insert(self._tx, nc)
        await containers.add(self._tx, nc, [SecondaryIP("", primary)])
        return nc.id

    async def _release(self, nc: NCRecord, released: set[str]) -> tuple[set[str], set[str], int]:
        """The NC's own among the released ids, those of them that just went, and how many IPs it keeps.

        What it owns is leaving now: its NNC still shows it. A conflict is another's address, and so gone.
        """
        leaving = await containers.leaving(self._tx, nc.id)
        mine = [ip for ip in await containers.owned(self._tx, nc.id) if ip.id and ip not in leaving]
        disputed = [ip for ip in await containers.conflicting(self._tx, nc.id) if ip.id]
        going = [ip for ip in mine if ip.id in released]
        dropped = [ip for ip in disputed if ip.id in released]
        await containers.leave(self._tx, nc, going)
        await containers.remove_conflicts(self._tx, nc, dropped)
        gone = {ip.id for ip in (*going, *dropped)}
        own = gone | {ip.id for ip in leaving}
        return own, gone, len(mine) + len(disputed) - len(going) - len(dropped)

    async def _grant(self, nc: NCRecord, record: SubnetRecord, wants: int) -> int:
        who = Asking(nc.cluster, nc.node, nc.id)
        waits = Waits(self._tx, record, self._now)
        granted = await waits.share(who, wants)
        addresses = await Pages(self._tx, record).allocate(granted)
        await containers.add(self._tx, nc, [SecondaryIP(self._new_id(), each) for each in addresses])
        await waits.record(who, wants - granted)
        return granted

    async def _in_use(self, record: SubnetRecord) -> bool:
        return bool(await self._tx.fetch("SELECT id FROM ncs WHERE subnet = $1 LIMIT 1", record.id))


_UPDATE = """UPDATE ncs SET target = $2, version = version + $3, fence_uid = $4, fence_version = $5
             WHERE id = $1"""


def _fenced(fence: Fence) -> tuple[str, int]:
    return fence.uid, fence.resource_version

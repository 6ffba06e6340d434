"""The allocator itself, on a database: every method is one transaction. In process, or behind HTTP.

The rooms behind it: `declaring` (subnets), `granting` (NCs and their IPs), `adopting`, `waits`; all of them
stand on `records`, `pages` and `containers`, which are the tables.
"""

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence

from subnetes.dnc import containers, declaring, records, waits
from subnetes.dnc.adopting import Adopting
from subnetes.dnc.checks import check_fence, check_key, check_name, check_target
from subnetes.dnc.errors import SubnetFull, SubnetUnknown
from subnetes.dnc.granting import Granting, shown
from subnetes.dnc.sql import Database, T, Transaction
from subnetes.dnc.types import (
    NC,
    AdoptedNC,
    Conflict,
    Declaration,
    Fence,
    SetResult,
    Subnet,
    SubnetKey,
    Utilization,
    Waiter,
)
from subnetes.dnc.waits import Asking, Waits


def _uuid() -> str:
    return str(uuid.uuid4())


class SqlAllocator:
    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, new_id: Callable[[], str] = _uuid
    ) -> None:
        self._database = database
        self._clock = clock
        self._new_id = new_id

    async def ensure_subnet(self, declaration: Declaration) -> Utilization:
        check_key(declaration.key)
        declaring.checked(declaration)

        async def work(tx: Transaction) -> Utilization:
            record = await declaring.declare(tx, declaration, self._new_id())
            return record.utilization(self._clock())

        return await self._run(work)

    async def delete_subnet(self, key: SubnetKey) -> None:
        check_key(key)
        await self._run(lambda tx: declaring.withdraw(tx, key))

    async def ensure_nc(self, cluster: str, node: str, subnet: SubnetKey) -> NC:
        _check_names(cluster=cluster, node=node)
        check_key(subnet)
        who = Asking(cluster, node, None)
        nc = await self._run(lambda tx: self._granting(tx).ensure_nc(who, subnet))
        if nc is None:
            raise SubnetFull(
                f"subnet {subnet} has no address left for the primary of node {node};"
                " it gets one as soon as others let go"
            )
        return nc

    async def set_secondary(
        self, cluster: str, nc_id: str, fence: Fence, target: int, released: Sequence[str]
    ) -> SetResult:
        _check_names(cluster=cluster, nc=nc_id)
        check_fence(fence)
        check_target(target)
        ids = _usable(released)
        return await self._run(
            lambda tx: self._granting(tx).set_secondary(cluster, nc_id, fence, target, ids)
        )

    async def confirm(self, cluster: str, nc_id: str, ids: Sequence[str]) -> int:
        _check_names(cluster=cluster, nc=nc_id)
        return await self._run(lambda tx: self._granting(tx).confirm(cluster, nc_id, _usable(ids)))

    async def release_wait(self, cluster: str, node: str, subnet: SubnetKey) -> None:
        _check_names(cluster=cluster, node=node)
        check_key(subnet)

        async def work(tx: Transaction) -> None:
            record = await records.hold(tx, subnet)
            if record is not None:
                await Waits(tx, record, self._clock()).record(Asking(cluster, node, None), 0)

        await self._run(work)

    async def adopt(self, cluster: str, ncs: Sequence[AdoptedNC]) -> tuple[Conflict, ...]:
        _check_names(cluster=cluster)
        return tuple(await self._run(lambda tx: Adopting(tx, cluster, self._new_id).adopt(ncs)))

    async def delete_nc(self, cluster: str, nc_id: str) -> int:
        _check_names(cluster=cluster, nc=nc_id)
        return await self._run(lambda tx: self._granting(tx).delete_nc(cluster, nc_id))

    async def nc(self, cluster: str, nc_id: str) -> NC:
        _check_names(cluster=cluster, nc=nc_id)
        return await self._run(lambda tx: shown(tx, cluster, nc_id))

    async def ncs(self, cluster: str, node: str | None = None) -> list[NC]:
        _check_names(cluster=cluster)
        if node is None:
            return await self._run(lambda tx: containers.shown(tx, "ncs.cluster = $1", cluster))
        _check_names(node=node)
        where = "ncs.cluster = $1 AND ncs.node = $2"
        return await self._run(lambda tx: containers.shown(tx, where, cluster, node))

    async def waiting(self, key: SubnetKey) -> list[Waiter]:
        check_key(key)
        return await self._run(lambda tx: waits.in_order(tx, key))

    async def utilization(self, key: SubnetKey) -> Utilization:
        check_key(key)
        record = await self._run(lambda tx: records.find(tx, key))
        if record is None:
            raise SubnetUnknown(f"subnet {key} is not declared")
        return record.utilization(self._clock())

    async def subnets(self) -> list[Subnet]:
        found = await self._run(records.all_records)
        return [record.shown(self._clock()) for record in found]

    async def close(self) -> None:
        await self._database.close()

    def _granting(self, tx: Transaction) -> Granting:
        return Granting(tx, self._clock(), self._new_id)

    async def _run(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._database.transaction(work)


def _usable(ids: Sequence[str]) -> set[str]:
    """Those that may be ids; the empty one is the primary's, which nobody can release."""
    return {each for each in ids if each and each.isprintable()}


def _check_names(**names: str) -> None:
    for what, text in names.items():
        check_name(f"the {what}'s name", text)

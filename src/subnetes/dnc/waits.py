"""Who waits for IPs of a subnet, in the order in which they are served. The caller holds the subnet's row.

The order is by turns that the subnet counts, not by times: a clock that is set back lets nobody overtake. A
wait keeps its turn while it lasts, but IPs are kept back only for those who asked lately: who died waiting
stops nobody.
"""

from dataclasses import dataclass

from subnetes.dnc.records import SubnetRecord
from subnetes.dnc.sql import Transaction
from subnetes.dnc.types import SubnetKey, Waiter
from subnetes.ipam import fairness

ASKED_LATELY = 120.0  # seconds; callers ask again every 30
_FORGOTTEN = 3600.0  # after so long without asking, a node that waits for a primary is taken for gone
_MOST = 100_000  # requests looked at in one grant

PRIMARY, SECONDARY = 0, 1  # ranks


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks: a node for its primary (`nc` None), or an NC."""

    cluster: str
    node: str
    nc: str | None

    @property
    def rank(self) -> int:
        return PRIMARY if self.nc is None else SECONDARY


class Waits:
    def __init__(self, tx: Transaction, record: SubnetRecord, now: float) -> None:
        self._tx = tx
        self._record = record
        self._now = now

    async def share(self, who: Asking, asks: int) -> int:
        """How many of the free IPs this one gets; whoever is older comes first."""
        free = self._record.free
        if free <= 0 or asks <= 0 or not self._record.declared:
            return 0
        turn = await self._turn(who)
        older = await self._older(who.rank, self._record.next_turn if turn is None else turn, free)
        return fairness.share(free, asks, older)

    async def record(self, who: Asking, wants: int) -> None:
        """It still wants so many; 0: it waits no more."""
        turn = await self._turn(who)
        if wants <= 0:
            if turn is not None:
                await self._tx.execute(_DELETE, self._record.id, who.rank, turn)
        elif turn is not None:
            await self._tx.execute(_ASK, self._record.id, who.rank, turn, self._now, wants)
        else:
            await self._begin(who, wants)

    async def _begin(self, who: Asking, wants: int) -> None:
        await self._tx.execute(_FORGET, self._record.id, self._now - _FORGOTTEN)
        turn, self._record.next_turn = self._record.next_turn, self._record.next_turn + 1
        named = (who.cluster, who.node, who.nc)
        await self._tx.execute(_BEGIN, self._record.id, who.rank, turn, *named, self._now, wants)

    async def _turn(self, who: Asking) -> int | None:
        if who.nc is None:
            rows = await self._tx.fetch(_TURN_OF_NODE, self._record.id, who.cluster, who.node)
        else:
            rows = await self._tx.fetch("SELECT turn FROM waits WHERE nc = $1", who.nc)
        return rows[0][0] if rows else None

    async def _older(self, rank: int, turn: int, free: int) -> list[fairness.Waiting]:
        """Each wants at least one, so no more of them matter than addresses are free."""
        lately, most = self._now - ASKED_LATELY, min(free, _MOST)
        rows = await self._tx.fetch(_OLDER, self._record.id, lately, rank, turn, most)
        return [
            fairness.Waiting(nc or f"{cluster}/{node}", turn, wants, primary=rank == PRIMARY)
            for rank, turn, cluster, node, nc, wants in rows
        ]


async def in_order(tx: Transaction, key: SubnetKey) -> list[Waiter]:
    rows = await tx.fetch(_ALL, key.network, key.name, key.family)
    return [Waiter(*row) for row in rows]


_TURN_OF_NODE = "SELECT turn FROM waits WHERE subnet = $1 AND rank = 0 AND cluster = $2 AND node = $3"
_DELETE = "DELETE FROM waits WHERE subnet = $1 AND rank = $2 AND turn = $3"
_FORGET = "DELETE FROM waits WHERE subnet = $1 AND rank = 0 AND asked < $2"
_ASK = "UPDATE waits SET asked = $4, wants = $5 WHERE subnet = $1 AND rank = $2 AND turn = $3"
_BEGIN = """INSERT INTO waits (subnet, rank, turn, cluster, node, nc, since, asked, wants)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8)"""
_OLDER = """SELECT rank, turn, cluster, node, nc, wants FROM waits
            WHERE subnet = $1 AND asked >= $2 AND (rank, turn) < ($3, $4) ORDER BY rank, turn LIMIT $5"""
_ALL = """SELECT cluster, node, nc, since, wants FROM waits WHERE subnet =
          (SELECT id FROM subnets WHERE network = $1 AND name = $2 AND family = $3) ORDER BY rank, turn"""

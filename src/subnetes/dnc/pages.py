"""Which addresses of a subnet are held, in pages of `PAGE` bits: claimed, given back, the next ones found.

The caller holds the subnet's row, and saves its counters afterwards. What a call touches depends on how many
addresses it is about, never on the subnet's size: the next page with room comes from an index, which works
because the first page after any full one always has a row.
"""

from collections.abc import Iterable, Sequence

from subnetes.dnc.errors import Broken
from subnetes.dnc.records import SubnetRecord, number
from subnetes.dnc.sql import Transaction
from subnetes.ipam.addresses import PAGE, take

_WITH_ROOM = """SELECT number, used FROM pages WHERE subnet = $1 AND number >= $2 AND room > 0
                ORDER BY number LIMIT 1"""
_NEW = """INSERT INTO pages (subnet, number, used, room) VALUES ($1, $2, $3, $4)
          ON CONFLICT (subnet, number) DO NOTHING"""
_SAVE = """INSERT INTO pages (subnet, number, used, room) VALUES ($1, $2, $3, $4)
           ON CONFLICT (subnet, number) DO UPDATE SET used = excluded.used, room = excluded.room"""


class Pages:
    def __init__(self, tx: Transaction, record: SubnetRecord) -> None:
        self._tx = tx
        self._record = record
        self._layout = record.layout

    async def allocate(self, count: int) -> list[str]:
        """The next `count` addresses from where the last search ended; so many are free, the caller knows."""
        given: list[str] = []
        while len(given) < count:
            given += await self._allocate_in_page(count - len(given))
        self._record.reserved += len(given)
        return given

    async def claim(self, addresses: Iterable[str]) -> None:
        """Take exactly these, which nobody holds."""
        for page, bits in self._by_page(addresses).items():
            used = await self._used(page)
            if used & bits:
                raise Broken(f"page {page} of {self._record.key} holds an address that nobody has")
            self._record.barred += (bits & self._layout.barred(page)).bit_count()
            self._record.reserved += bits.bit_count()
            await self._save(page, used | bits)

    async def free(self, addresses: Iterable[str]) -> None:
        """Give back exactly these, which are held."""
        for page, bits in self._by_page(addresses).items():
            used = await self._used(page)
            if used & bits != bits:
                raise Broken(f"page {page} of {self._record.key} misses an address that somebody has")
            self._record.barred -= (bits & self._layout.barred(page)).bit_count()
            self._record.reserved -= bits.bit_count()
            await self._save(page, used & ~bits)

    async def all(self) -> list[tuple[int, int]]:
        """Every page that has a row; for a declaration that changes."""
        rows = await self._tx.fetch("SELECT number, used FROM pages WHERE subnet = $1", self._record.id)
        return [(int.from_bytes(page, "big"), _bitmap(used)) for page, used in rows]

    async def recount(self, pages: Sequence[tuple[int, int]]) -> None:
        """The extent or the excludes changed: what is barred, and where there is room."""
        self._record.barred = sum((used & self._layout.barred(page)).bit_count() for page, used in pages)
        for page, used in pages:
            await self._save(page, used)

    async def _allocate_in_page(self, count: int) -> list[str]:
        at, start = divmod(self._record.next_address, PAGE)
        page, used = await self._with_room(at)
        start = start if page == at else 0
        behind = (1 << start) - 1
        used, bits = take(used, self._layout.barred(page) | behind, start, count)
        if bits:
            await self._save(page, used)
        ended = len(bits) < count
        self._record.next_address = (page + 1) * PAGE if ended else page * PAGE + bits[-1] + 1
        return [self._layout.address(page, bit) for bit in bits]

    async def _with_room(self, page: int) -> tuple[int, int]:
        """The first page with room from this one on, or else from the beginning; and what is used of it."""
        for begin in (page, 0):
            first = self._layout.next_open(begin)
            found = None if first is None else await self._with_room_from(first)
            if found is not None:
                return found
        raise Broken(f"{self._record.key} counts {self._record.free} free addresses and has none")

    async def _with_room_from(self, first: int) -> tuple[int, int] | None:
        rows = await self._tx.fetch(_WITH_ROOM, self._record.id, number(first))
        if rows and rows[0][0] == number(first):
            return first, _bitmap(rows[0][1])
        if await self._begin(first):
            return first, 0
        return (int.from_bytes(rows[0][0], "big"), _bitmap(rows[0][1])) if rows else None

    async def _begin(self, page: int) -> bool:
        """Give the page its row; False: it has one."""
        room = self._layout.room(page, 0)
        return await self._tx.execute(_NEW, self._record.id, number(page), b"", room) > 0

    async def _used(self, page: int) -> int:
        statement = "SELECT used FROM pages WHERE subnet = $1 AND number = $2"
        rows = await self._tx.fetch(statement, self._record.id, number(page))
        return _bitmap(rows[0][0]) if rows else 0

    async def _save(self, page: int, used: int) -> None:
        room = self._layout.room(page, used)
        content = used.to_bytes((used.bit_length() + 7) // 8, "little")
        await self._tx.execute(_SAVE, self._record.id, number(page), content, room)
        after = None if room else self._layout.next_open(page + 1)
        if after is not None:
            await self._begin(after)

    def _by_page(self, addresses: Iterable[str]) -> dict[int, int]:
        pages: dict[int, int] = {}
        for address in addresses:
            page, bit = self._layout.locate(address)
            pages[page] = pages.get(page, 0) | 1 << bit
        return dict(sorted(pages.items()))


def _bitmap(content: bytes) -> int:
    return int.from_bytes(content, "little")

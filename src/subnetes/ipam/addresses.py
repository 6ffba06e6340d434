"""Which addresses of a subnet are in use, and which come next.

What is in use is kept in bitmaps of `PAGE` addresses, one integer a page, so that a batch costs the same in a
/24 and in a /8. DNC stores such pages in its database and runs `take` on one at a time; `Addresses` holds its
own in memory. What a subnet has to give, and every error, is drawn in `space.py`.
"""

from collections.abc import Iterator

from subnetes.ipam.intervals import Intervals
from subnetes.ipam.space import (
    FULL_PAGE,
    PAGE,
    AddressError,
    AddressSpace,
    AlreadyAllocated,
    InvalidCIDR,
    InvalidExclude,
    InvalidGateway,
    InvalidSubnet,
    NeverGiven,
    NotAllocated,
    NothingToGive,
    OutsideSubnet,
)

__all__ = [
    "PAGE",
    "AddressError",
    "AddressSpace",
    "Addresses",
    "AlreadyAllocated",
    "InvalidCIDR",
    "InvalidExclude",
    "InvalidGateway",
    "InvalidSubnet",
    "NeverGiven",
    "NotAllocated",
    "NothingToGive",
    "OutsideSubnet",
    "take",
]


def take(used: int, blocked: int, start: int, count: int) -> tuple[int, list[int]]:
    """The page's new bitmap, and up to `count` bits that were free: from `start` on, then from the beginning.

    To leave a page at its end, as `Addresses` does, block what is below `start` too.
    """
    free = FULL_PAGE & ~(used | blocked)
    ahead = free >> start << start
    given = _lowest(ahead, count)
    if len(given) < count:
        given += _lowest(free ^ ahead, count - len(given))
    for bit in given:
        used |= 1 << bit
    return used, given


def _lowest(bits: int, count: int) -> list[int]:
    """The numbers of the lowest bits that are set."""
    found: list[int] = []
    while bits and len(found) < count:
        lowest = (bits & -bits).bit_length() - 1
        found.append(lowest)
        bits ^= 1 << lowest
    return found


class Addresses:
    """Next-fit: a freed address is not given again before the search went once around the space."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self._used: dict[int, int] = {}  # page -> bitmap; an empty page has no entry
        self._full = Intervals()  # pages of which nothing is left
        self._count = 0
        self._next = 0

    def allocate(self, count: int) -> list[str]:
        """As many as are left, at most `count`."""
        given: list[int] = []
        count = min(count, self.space.capacity - self._count)
        while len(given) < count:
            given += self._allocate_in_page(count - len(given))
        return [self.space.address(offset) for offset in given]

    def claim(self, address: str) -> None:
        """Take this very address."""
        offset = self.space.offset(address)
        if not self.space.may_give(offset):
            raise NeverGiven(f"{address} is reserved or excluded in {self.space.cidr}")
        page, bit = divmod(offset, PAGE)
        used = self._used.get(page, 0)
        if used >> bit & 1:
            raise AlreadyAllocated(f"{address} is already in use in {self.space.cidr}")
        self._keep(page, used | 1 << bit)
        self._count += 1

    def free(self, address: str) -> None:
        page, bit = divmod(self.space.offset(address), PAGE)
        used = self._used.get(page, 0)
        if not used >> bit & 1:
            raise NotAllocated(f"{address} is not in use in {self.space.cidr}")
        self._keep(page, used ^ 1 << bit)
        self._count -= 1

    def count(self) -> int:
        return self._count

    def __contains__(self, address: str) -> bool:
        page, bit = divmod(self.space.offset(address), PAGE)
        return bool(self._used.get(page, 0) >> bit & 1)

    def __iter__(self) -> Iterator[str]:
        """Those in use, in the order of the space."""
        for page in sorted(self._used):
            used = self._used[page]
            yield from (self.space.address(page * PAGE + bit) for bit in _lowest(used, PAGE))

    def _allocate_in_page(self, count: int) -> list[int]:
        """What the first page with any free one has, from the cursor on; the cursor goes behind it."""
        page = self._open_page(self._next // PAGE)
        start = self._next % PAGE if page == self._next // PAGE else 0
        behind = (1 << start) - 1
        used, bits = take(self._used.get(page, 0), self.space.blocked(page) | behind, start, count)
        if bits:
            self._keep(page, used)
            self._count += len(bits)
        at_end = len(bits) < count
        self._next = (page + 1) * PAGE if at_end else page * PAGE + bits[-1] + 1
        return [page * PAGE + bit for bit in bits]

    def _open_page(self, number: int) -> int:
        """Some address is left: so after the last page the search begins anew, and ends."""
        candidate: int | None = number
        while candidate is not None:
            candidate = self.space.next_open_page(candidate)
            if candidate is not None:
                beyond = self._full.first_beyond(candidate)
                if beyond == candidate:
                    return candidate
                candidate = beyond
        self._next = 0
        return self._open_page(0)

    def _keep(self, page: int, used: int) -> None:
        if used:
            self._used[page] = used
        else:
            self._used.pop(page, None)
        if used | self.space.blocked(page) == FULL_PAGE:
            self._full.add(page)
        else:
            self._full.discard(page)

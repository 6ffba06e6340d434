"""Where a subnet's addresses lie among the pages of DNC's record. Pure; for `pages.py` and `declaring.py`.

`AddressSpace` counts from the network address, which changes when a /24 grows into a /16. The record counts
from 0.0.0.0 or ::, so growing rewrites nothing: page n always holds the addresses n * PAGE up to
(n + 1) * PAGE - 1, and a subnet smaller than a page uses a part of one.
"""

from collections.abc import Iterator
from functools import lru_cache

from subnetes.ipam.addresses import PAGE, AddressSpace, OutsideSubnet

ALL = (1 << PAGE) - 1


class Layout:
    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.base = int(space.network.network_address)
        self._first, self._shift = divmod(self.base, PAGE)

    def locate(self, address: str) -> tuple[int, int]:
        """Page and bit of an address; OutsideSubnet."""
        return divmod(self.base + self.space.offset(address), PAGE)

    def has(self, address: str) -> bool:
        try:
            self.space.offset(address)
        except OutsideSubnet:
            return False
        return True

    def address(self, page: int, bit: int) -> str:
        return self.space.address(page * PAGE + bit - self.base)

    def inside(self, page: int) -> int:
        """The page's bits that belong to the subnet."""
        if not 0 <= page - self._first < self.space.page_count:
            return 0
        return ((1 << min(self.space.size, PAGE)) - 1) << self._shift

    def barred(self, page: int) -> int:
        """The page's bits that are never given: outside, reserved or excluded."""
        if not 0 <= page - self._first < self.space.page_count:
            return ALL
        below = (1 << self._shift) - 1
        return (self.space.blocked(page - self._first) << self._shift & ALL) | below

    def room(self, page: int, used: int) -> int:
        """How many of the page may still be given."""
        return PAGE - (used | self.barred(page)).bit_count()

    def next_open(self, page: int) -> int | None:
        """The first page from this one on of which anything may be given, used or not."""
        found = self.space.next_open_page(max(0, page - self._first))
        return None if found is None else found + self._first


@lru_cache(maxsize=1024)
def layout_of(cidr: str, gateway: str | None, exclude: tuple[str, ...]) -> Layout:
    """InvalidSubnet."""
    return Layout(AddressSpace.parse(cidr, gateway, exclude))


def bits_of(bitmap: int) -> Iterator[int]:
    while bitmap:
        lowest = bitmap & -bitmap
        yield lowest.bit_length() - 1
        bitmap ^= lowest

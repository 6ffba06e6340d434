"""A subnet as declared: which addresses it has and which of them may be given. DNC reads declarations so.

A space is never written out: an IPv6 /64 is two numbers and its exceptions.

     offset 0     1         2 …                                        size - 1
          ┌─────┬─────────┬────────────┬──────────────┬──────────────┬───────────┐
          │ net │ gateway │ may give … │ excluded …   │ may give …   │ broadcast │
          └─────┴─────────┴────────────┴──────────────┴──────────────┴───────────┘
           never   never                     never                    never (IPv4)

The network address of IPv6 is the subnet-router anycast address, and its last address is one like the others.
A /31 and a /127 have neither: both addresses count (RFC 3021, RFC 6164). A /32 and a /128 have no room beside
their gateway.

    AddressError
    ├── InvalidSubnet         as declared, it cannot serve
    │   ├── InvalidCIDR       no network, or an address inside one
    │   ├── InvalidGateway    none of its addresses, or one that no machine may have
    │   ├── InvalidExclude    no address, range or CIDR, or not inside
    │   └── NothingToGive     what is reserved and excluded covers all of it
    ├── OutsideSubnet         no address of this subnet
    ├── NeverGiven            reserved or excluded
    ├── AlreadyAllocated
    └── NotAllocated
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from subnetes.ipam.intervals import Intervals, Run, merged

PAGE = 4096
FULL_PAGE = (1 << PAGE) - 1

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class AddressError(Exception): ...


class InvalidSubnet(AddressError): ...


class InvalidCIDR(InvalidSubnet): ...


class InvalidGateway(InvalidSubnet): ...


class InvalidExclude(InvalidSubnet): ...


class NothingToGive(InvalidSubnet): ...


class OutsideSubnet(AddressError): ...


class NeverGiven(AddressError): ...


class AlreadyAllocated(AddressError): ...


class NotAllocated(AddressError): ...


@dataclass(frozen=True, slots=True)
class AddressSpace:
    """A subnet as declared. An address is named by its offset from the network address."""

    network: Network
    gateway_offset: int
    never: tuple[Run, ...]
    """Offsets that are never given, merged."""
    size: int
    capacity: int
    """How many addresses may be given."""
    _base: int = field(repr=False)
    _never: Intervals = field(repr=False, compare=False)

    @classmethod
    def parse(cls, cidr: str, gateway: str | None = None, exclude: Iterable[str] = ()) -> "AddressSpace":
        network = _network(cidr)
        reserved = _reserved(network)
        at = _gateway(network, gateway, reserved)
        never = merged(
            [*((offset, offset) for offset in (*reserved, at)), *(_run(network, e) for e in exclude)]
        )
        size = network.num_addresses
        capacity = size - sum(last - first + 1 for first, last in never)
        if not capacity:
            raise NothingToGive(
                f"no address of {cidr} is left to give: its gateway, its reserved addresses and its excludes"
                " cover all of it; exclude less or declare a larger subnet"
            )
        return cls(network, at, never, size, capacity, int(network.network_address), Intervals(never))

    @property
    def cidr(self) -> str:
        return str(self.network)

    @property
    def family(self) -> int:
        return self.network.version

    @property
    def prefix_length(self) -> int:
        return self.network.prefixlen

    @property
    def gateway(self) -> str:
        return self.address(self.gateway_offset)

    @property
    def page_count(self) -> int:
        return -(-self.size // PAGE)

    def offset(self, address: str) -> int:
        parsed = _address(address)
        if parsed is None or parsed not in self.network:
            raise OutsideSubnet(f"{address!r} is no address of {self.cidr}")
        return int(parsed) - self._base

    def address(self, offset: int) -> str:
        if not 0 <= offset < self.size:
            raise OutsideSubnet(f"{self.cidr} has {self.size} addresses, and none at offset {offset}")
        number = self._base + offset
        if self.network.version == 6:
            return str(IPv6Address(number))
        # Four times as fast as the library, and sixteen times in every batch.
        return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"

    def may_give(self, offset: int) -> bool:
        return 0 <= offset < self.size and self._never.run_of(offset) is None

    def overlaps(self, other: "AddressSpace") -> bool:
        return (
            self.family == other.family
            and self._base < other._base + other.size
            and other._base < self._base + self.size
        )

    def next_open_page(self, number: int) -> int | None:
        """The first page from this one on that has an address to give; there may be none before the end."""
        offset = self._never.first_beyond(number * PAGE)
        return offset // PAGE if offset < self.size else None

    def blocked(self, page: int) -> int:
        """The addresses of a page that are never given, and the bits beyond the end, as a bitmap."""
        start = page * PAGE
        end = max(0, min(self.size - start, PAGE))
        bits = FULL_PAGE >> end << end
        for first, last in self._never.within(start, start + PAGE - 1):
            bits |= ((1 << (last - first + 1)) - 1) << (first - start)
        return bits


def _network(cidr: str) -> Network:
    address, slash, length = cidr.partition("/")
    parsed = _address(address)
    if parsed is None or not slash or not (length.isascii() and length.isdigit()):
        raise InvalidCIDR(f"{cidr!r} is no CIDR: write an address and a prefix length, such as 10.0.0.0/16")
    if int(length) > parsed.max_prefixlen:
        raise InvalidCIDR(
            f"{cidr!r} is no CIDR: a prefix of IPv{parsed.version} has at most {parsed.max_prefixlen} bits"
        )
    network = ip_network(f"{address}/{int(length)}", strict=False)
    if network.network_address != parsed:
        raise InvalidCIDR(f"{cidr} names an address inside a network; the network is {network}")
    return network


def _address(text: str) -> Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def _reserved(network: Network) -> tuple[int, ...]:
    if network.prefixlen >= network.max_prefixlen - 1:
        return ()
    return (0, network.num_addresses - 1) if network.version == 4 else (0,)


def _gateway(network: Network, gateway: str | None, reserved: tuple[int, ...]) -> int:
    if gateway is None:
        return 1 if reserved else 0
    parsed = _address(gateway)
    if parsed is None or parsed not in network:
        raise InvalidGateway(f"the gateway {gateway!r} is no address of {network}: name one inside, or none")
    offset = int(parsed) - int(network.network_address)
    if offset in reserved and network.version == 4:
        raise InvalidGateway(
            f"the gateway {gateway} is the network or broadcast address of {network}: name another"
        )
    return offset


def _run(network: Network, exclude: str) -> Run:
    """The offsets that an entry of the excludes covers."""
    first, last = _ends(exclude)
    if first.version != network.version or first not in network or last not in network:
        raise InvalidExclude(
            f"the exclude {exclude!r} is not inside {network}: take it away or cut it to fit"
        )
    base = int(network.network_address)
    return int(first) - base, int(last) - base


def _ends(exclude: str) -> tuple[Address, Address]:
    if "/" in exclude:
        try:
            network = _network(exclude)
        except InvalidCIDR as e:
            raise InvalidExclude(f"the exclude {exclude!r}: {e}") from None
        return network[0], network[-1]
    start, dash, end = exclude.partition("-")
    first, last = _address(start.strip()), _address(end.strip() if dash else start.strip())
    if first is None or last is None or first.version != last.version:
        raise InvalidExclude(f"the exclude {exclude!r} is no address, range (first-last) or CIDR")
    if int(last) < int(first):
        raise InvalidExclude(
            f"the exclude {exclude!r} ends before it begins: write {end.strip()}-{start.strip()}"
        )
    return first, last

"""What goes in and out of DNC: plain values, the same in one process and over HTTP.

Every number is a target or a count, never a difference, so each call can be repeated without harm.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SubnetKey:
    """A subnet's name; one name stands for up to two subnets, one a family. `network` may be empty."""

    network: str
    name: str
    family: int  # 4 or 6

    def __str__(self) -> str:
        return (
            f"{self.network}/{self.name} (IPv{self.family})"
            if self.network
            else f"{self.name} (IPv{self.family})"
        )


@dataclass(frozen=True, slots=True)
class Declaration:
    key: SubnetKey
    cidr: str
    gateway: str | None = None  # None: the first address of the space
    exclude: tuple[str, ...] = ()  # addresses, ranges `a-b`, CIDRs


@dataclass(frozen=True, slots=True)
class Utilization:
    timestamp: int  # Unix seconds
    capacity: int  # how many addresses may be given at all
    reserved: int  # how many are held, primaries included
    free: int  # how many may be given now


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet on record. Undeclared: known only from adopted NCs, so nothing new is granted from it."""

    key: SubnetKey
    cidr: str
    gateway: str
    exclude: tuple[str, ...]
    declared: bool
    utilization: Utilization


@dataclass(frozen=True, slots=True)
class SecondaryIP:
    id: str  # minted at the grant, never used again
    address: str


@dataclass(frozen=True, slots=True)
class NC:
    """A network container with all that it holds, in the order of the addresses."""

    id: str
    cluster: str
    node: str
    subnet: SubnetKey
    primary: str
    version: int  # one higher at each change of its IPs
    secondary: tuple[SecondaryIP, ...]
    target: int  # how many secondary IPs it asked for last
    waiting: int  # how many of them it still has to get
    gateway: str
    cidr: str
    leaving: tuple[SecondaryIP, ...] = ()  # released: nobody's, until it is confirmed that nobody shows them
    shown_as: str = ""  # not empty: its NNC shows this id, which is another NC's; it only keeps the addresses


@dataclass(frozen=True, slots=True)
class Fence:
    """The reading of the NNC that a call is based on."""

    uid: str
    resource_version: int


@dataclass(frozen=True, slots=True)
class SetResult:
    nc: NC
    refused: tuple[str, ...]  # ids of other NCs among the released ones: nothing happened to them


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for IPs: an NC for more of them, or a node (`nc` None) for its primary."""

    cluster: str
    node: str
    nc: str | None
    since: float
    wants: int


@dataclass(frozen=True, slots=True)
class AdoptedNC:
    """An NC as its NNC's status shows it, whoever wrote that."""

    id: str
    node: str
    subnet: SubnetKey
    cidr: str
    gateway: str
    primary: str  # empty: it has none
    version: int
    secondary: tuple[SecondaryIP, ...] = ()


@dataclass(frozen=True, slots=True)
class Conflict:
    """What could not be adopted as it stands: the NC keeps it in its record, and DNC never grants it."""

    address: str  # empty: the whole NC is meant
    id: str  # empty: the primary, or the whole NC
    nc: str
    owner_nc: str | None  # who owns the address here, if it is an NC of the same cluster
    reason: str

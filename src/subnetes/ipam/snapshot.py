"""Everything that knows of IPs, read at about one moment, and what can be wrong with it.

`subnetes ipam check` fills a `Snapshot` from a live cluster, tests from their own parts, and `invariants.py`
looks at it. What was not read is None and not looked at. Plain values: nothing here knows Kubernetes, a
database or a disk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from subnetes.ipam.moves import IP

DEFAULT_MAXIMUM = 250


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be, by its number in the list of `invariants.py`."""

    number: int
    subject: str  # the same in every reading in which this fault stands
    text: str  # which IP, which owners, where to look

    def __str__(self) -> str:
        return f"[{self.number}] {self.text}"


@dataclass(frozen=True, slots=True)
class Grant:
    """One secondary IP of an NC."""

    id: str
    address: str


@dataclass(frozen=True, slots=True)
class Container:
    """An NC, as DNC has it on record or as an NNC's status shows it."""

    id: str
    node: str
    subnet: str = ""
    network: str = ""  # two networks may use the same addresses
    cidr: str = ""
    primary: str = ""  # an address or a CIDR; empty: it has none
    version: int = 0
    secondary: tuple[Grant, ...] = ()
    leaving: tuple[Grant, ...] = ()  # of DNC's record: released, and reserved until the status shows it


@dataclass(frozen=True, slots=True)
class Writer:
    """Who last wrote some fields of an object, as metadata.managedFields tells it."""

    manager: str
    subresource: str
    fields: tuple[str, ...]  # such as spec.secondaryIPs


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """An NNC."""

    node: str
    containers: tuple[Container, ...] = ()
    targets: Mapping[str, int] = field(default_factory=dict)  # NC → how many secondary IPs it should have
    released: tuple[str, ...] = ()
    maximum: int = DEFAULT_MAXIMUM
    writers: tuple[Writer, ...] = ()


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node's pool: as its agent's journal says, and as the agent itself says, if it was asked."""

    node: str
    journal: tuple[IP, ...] = ()
    memory: tuple[IP, ...] | None = None
    source: str = ""  # where to look


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod that may need an IP: not on its node's own network."""

    namespace: str
    name: str
    uid: str
    node: str
    addresses: tuple[str, ...] = ()
    finished: bool = False
    terminating: bool = False

    @property
    def lives(self) -> bool:
        """Whether its addresses are surely its own; one that goes may have lost its sandbox already."""
        return not self.finished and not self.terminating

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A sandbox that was seen to live on a node; `addresses` are those of the interface."""

    node: str
    container_id: str
    ifname: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFabric:
    """A NodeNetwork: one ClusterNetwork on one node."""

    node: str
    cluster_network: str
    ready: bool
    devices: tuple[str, ...] = ()
    needs_tunnel: bool = False
    tunnel_end: str = ""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A stored object, and what is left of it after our code has read and written it."""

    where: str
    stored: Mapping[str, Any]
    again: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    dnc: tuple[Container, ...] | None = None
    configs: tuple[NodeConfig, ...] = ()
    pools: tuple[NodePool, ...] = ()  # of the nodes whose journals could be read
    pods: tuple[PodRecord, ...] | None = None
    sandboxes: Mapping[str, tuple[Sandbox, ...]] = field(default_factory=dict)  # by node, where known
    fabrics: tuple[NodeFabric, ...] = ()
    satisfied: tuple[tuple[str, str], ...] = ()  # node, ClusterNetwork: the node has the label
    trips: tuple[RoundTrip, ...] = ()

    def statuses(self) -> Iterator[Container]:
        """The NCs of all NNCs."""
        for config in self.configs:
            yield from config.containers

    def record(self) -> tuple[tuple[Container, ...], str]:
        """Who says what is allocated: DNC, or the NNCs' statuses where DNC was not asked; and its name."""
        if self.dnc is not None:
            return self.dnc, "DNC"
        return tuple(self.statuses()), "the NNCs' statuses"

"""One term of leadership: who we are in it, whether it still lasts, and what the controllers share.

Every reconciler gets the same `Term` and the same `Stores`. `must_lead` stands right before each grant and
each write. What a pause between it and the write lets slip is stopped by the resourceVersion in it, for
the next leader changes every NNC before its first grant (adoption.py).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node
from subnetes.api.meta import Object
from subnetes.api.model import View
from subnetes.api.network import Network
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.placement import drawn_from
from subnetes.controllers.status import containers_of
from subnetes.dnc.errors import DncError, NCUnknown
from subnetes.kube.codec import Listing
from subnetes.kube.errors import Permanent, Temporary
from subnetes.kube.key import Key
from subnetes.kube.patches import Patch
from subnetes.kube.store import Store

K = TypeVar("K", bound=Object | View)
W = TypeVar("W", bound=Object)


class NotLeading(Temporary):
    """Somebody else may lead by now; the process hears of it in a moment."""


class DncTrouble(Temporary):
    """DNC said no for now; the controller tries again."""


class DncRefusal(Permanent):
    """DNC said no for good."""


def as_trouble(problem: DncError) -> DncTrouble | DncRefusal:
    """DNC's error as the controller loop knows errors: with or without a retry soon."""
    again = problem.temporary or isinstance(problem, NCUnknown)  # the next look makes another NC
    kind = DncTrouble if again else DncRefusal
    return kind(problem.message, reason=problem.reason)


@dataclass(frozen=True)
class Term:
    cluster: str
    namespace: str
    identity: str  # of this term alone, also among the replica's own terms
    leads: Callable[[], bool]
    now: Callable[[], float] = time.time  # seconds since the epoch
    node_grace: float = 120.0
    counts_every: float = 30.0

    def must_lead(self) -> None:
        if not self.leads():
            raise NotLeading(f"{self.identity} no longer leads")

    def nnc_key(self, node: str) -> Key:
        return Key(self.namespace, node)

    def grants(self, nnc: NodeNetworkConfig) -> bool:
        """Whether the NNC is stamped as ours; one that is not was made by somebody else."""
        return (nnc.metadata.annotations or {}).get(names.GRANTER) == self.identity


class Events(Protocol):
    """What is needed of the recorder."""

    def normal(self, about: Object, reason: str, message: str) -> None: ...
    def warning(self, about: Object, reason: str, message: str) -> None: ...


class Api(Protocol):
    """What is needed of the client."""

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...
    async def list(
        self,
        kind: type[K],
        namespace: str | None = None,
        *,
        label_selector: str = ...,
        field_selector: str = ...,
    ) -> Listing[K]: ...
    async def create(self, obj: W) -> W: ...
    async def update(self, obj: W) -> W: ...
    async def update_status(self, obj: W) -> W: ...
    async def patch(self, kind: type[K], name: str, patch: Patch, namespace: str | None = None) -> K: ...
    async def delete(
        self, kind: type[Object], name: str, namespace: str | None = None, *, uid: str | None = None
    ) -> None: ...


@dataclass(frozen=True)
class Stores:
    """The local copies that reconcilers read."""

    nodes: Store[Node]
    nncs: Store[NodeNetworkConfig]
    subnets: Store[ClusterSubnet]
    networks: Store[Network]

    def node(self, name: str) -> Node | None:
        return self.nodes.get(Key("", name))

    def drawn_from(self, node: Node) -> list[ClusterSubnet]:
        return drawn_from(node, self.subnets, self.bound)

    def bound(self, subnet: str) -> frozenset[str]:
        return frozenset(each.spec.cluster_network_name for each in self.networks.by("subnet", subnet))

    def holders(self, subnet: str) -> list[NodeNetworkConfig]:
        """The NNCs with a network container in the subnet of this name."""
        return self.nncs.by("subnet", subnet)


def nncs_by_subnet(nnc: NodeNetworkConfig) -> set[str]:
    return {each.subnet_name for each in containers_of(nnc)}


def nncs_by_nc(nnc: NodeNetworkConfig) -> set[str]:
    return {each.id for each in containers_of(nnc)}


def networks_by_subnet(network: Network) -> list[str]:
    going = network.metadata.deletion_timestamp is not None
    return [network.spec.subnet_name] if network.spec.subnet_name and not going else []


def empty_stores() -> Stores:
    return Stores(
        nodes=Store(),
        nncs=Store({"subnet": nncs_by_subnet, "nc": nncs_by_nc}),
        subnets=Store(),
        networks=Store({"subnet": networks_by_subnet}),
    )


@dataclass(frozen=True)
class Wakes:
    """How one controller has another look at something."""

    node: Callable[[str], None]  # the NNC of the node of this name
    subnet: Callable[[str], None]  # the ClusterSubnet of this name

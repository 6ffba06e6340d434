"""The parts of one term of leadership, put together: stores, reconcilers, controllers and what leads to what.

`process.py` builds one at every term, so that nothing of a former term (its DNC, its memory, its copies) can
be mistaken for the record. Tests build one to drive reconcilers by hand.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Node
from subnetes.api.network import Network
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import adoption, clustersubnet, nodenetworkconfig
from subnetes.controllers.adoption import Adoption
from subnetes.controllers.clustersubnet import ClusterSubnetReconciler
from subnetes.controllers.departure import Departures
from subnetes.controllers.node import NodeReconciler
from subnetes.controllers.nodenetworkconfig import NodeNetworkConfigReconciler
from subnetes.controllers.projection import Projection
from subnetes.controllers.routes import Routes
from subnetes.controllers.subnetstate import SubnetStates
from subnetes.controllers.term import (
    Api,
    Events,
    Stores,
    Term,
    Wakes,
    networks_by_subnet,
    nncs_by_nc,
    nncs_by_subnet,
)
from subnetes.controllers.waiters import Waiters
from subnetes.dnc.allocator import Allocator
from subnetes.kube.client import Client
from subnetes.kube.controller import Controller
from subnetes.kube.delivery import Handler
from subnetes.kube.informer import Informer
from subnetes.kube.metrics import Metrics
from subnetes.kube.selection import Selection

T = TypeVar("T")


class Reconcilers:
    """The three, and what they share, around one DNC."""

    def __init__(
        self, term: Term, api: Api, allocator: Allocator, stores: Stores, events: Events, wakes: Wakes
    ) -> None:
        waiters = Waiters(term, allocator, wakes)
        self.term = term
        self.projection = Projection()
        self.departures = Departures(term, api, allocator, stores, events, waiters)
        self.adoption = Adoption(
            term, api, allocator, stores, adoption.Parts(self.departures.returning, events)
        )
        self.node = NodeReconciler(term, api, stores)
        self.states = SubnetStates(term, api, stores)
        self.nnc = NodeNetworkConfigReconciler(
            term,
            nodenetworkconfig.Parts(api, allocator, stores, events, waiters, self.adoption, self.departures),
        )
        self.subnet = ClusterSubnetReconciler(
            term,
            clustersubnet.Parts(
                api, allocator, stores, events, waiters, self.adoption, self.projection, wakes
            ),
        )


@dataclass(frozen=True)
class Informers:
    nodes: Informer[Node]
    nncs: Informer[NodeNetworkConfig]
    subnets: Informer[ClusterSubnet]
    networks: Informer[Network]

    @classmethod
    def of(cls, client: Client, namespace: str, metrics: Metrics) -> "Informers":
        return cls(
            Informer("nodes", Selection(client, Node), metrics=metrics),
            Informer(
                "nodenetworkconfigs",
                Selection(client, NodeNetworkConfig, namespace),
                indexes={"subnet": nncs_by_subnet, "nc": nncs_by_nc},
                metrics=metrics,
            ),
            Informer("clustersubnets", Selection(client, ClusterSubnet, namespace), metrics=metrics),
            Informer(
                "networks",
                Selection(client, Network),
                indexes={"subnet": networks_by_subnet},
                metrics=metrics,
            ),
        )

    def all(self) -> list[Informer[Any]]:
        return [self.nodes, self.nncs, self.subnets, self.networks]

    def stores(self) -> Stores:
        return Stores(self.nodes.store, self.nncs.store, self.subnets.store, self.networks.store)


class Controllers:
    """The work queues and their workers, fed by the informers."""

    def __init__(self, reconcilers: Reconcilers, informers: Informers, metrics: Metrics) -> None:
        self.node = Controller("node", reconcilers.node.reconcile, workers=8, metrics=metrics)
        self.nnc = Controller("nodenetworkconfig", reconcilers.nnc.reconcile, workers=16, metrics=metrics)
        self.subnet = Controller("clustersubnet", reconcilers.subnet.reconcile, workers=4, metrics=metrics)
        self.states = Controller(
            "clustersubnetstate", reconcilers.states.reconcile, workers=2, metrics=metrics
        )
        self.routes = Routes(
            reconcilers.term.namespace,
            informers.stores(),
            reconcilers.projection,
            node=self.node.enqueue,
            nnc=self.nnc.enqueue,
            subnet=self.subnet.enqueue,
        )
        self._told(informers.nodes, self.routes.node_changed)
        self._told(informers.nncs, self.routes.nnc_changed)
        self._told(informers.subnets, self.routes.subnet_changed)
        self._told(informers.networks, self.routes.network_changed)
        self.states.follow(informers.subnets)

    def all(self) -> list[Controller]:
        return [self.states, self.subnet, self.node, self.nnc]

    def _told(self, informer: Informer[T], changed: Handler[T]) -> None:
        """All wait until every store is whole; what a change concerns, the routes say."""
        informer.on_change(changed)
        for controller in self.all():
            controller.follow(informer, _nobody)


def _nobody(_: object) -> tuple[()]:
    return ()

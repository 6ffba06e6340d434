"""DNC-RC as one service: campaigns for the lease, takes the record over, reconciles until the lease is lost.

Every term starts from nothing but the API server (and, if it has a record of its own, DNC): see adoption.py.
A replica that loses its lease campaigns again, as a new candidate, so that nothing is taken for its own which
another leader may have changed. `subnetes controller` and `subnetes up` run it.
"""

import asyncio
import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from subnetes.api import names
from subnetes.controllers.adoption import Adoption
from subnetes.controllers.assembly import Controllers, Informers, Reconcilers
from subnetes.controllers.migration import Migration, Pace
from subnetes.controllers.term import Term, Wakes
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.sqlite import open_sqlite
from subnetes.kube.backoff import Backoff
from subnetes.kube.client import Client
from subnetes.kube.election import Terms
from subnetes.kube.errors import ApiError
from subnetes.kube.events import Recorder
from subnetes.kube.key import Key
from subnetes.kube.lease import Elector, LeadershipLost
from subnetes.kube.metrics import Metrics
from subnetes.kube.services import Service, run, until

log = logging.getLogger(__name__)

OpenAllocator = Callable[[], Allocator | Awaitable[Allocator]]
COMPONENT = "subnetes-controller"
_RETRY = Backoff(first=0.2, cap=15.0)


@dataclass(frozen=True)
class Settings:
    identity: str
    cluster: str = "local"
    node_grace: float = 120.0  # seconds that the IPs of a node that is gone stay reserved
    terms: Terms = field(default_factory=Terms)
    namespace: str = names.NAMESPACE
    lease: str = "subnetes-controller"
    counts_every: float = 30.0  # seconds between two writes of a subnet's figures
    patience: float = 20.0  # seconds for what is in hand when asked to stop
    migration: Pace = field(default_factory=Pace)


async def in_memory() -> Allocator:
    """A DNC for one cluster, whose record is the API server's."""
    return SqlAllocator(await open_sqlite())


def dnc_rc(
    client: Client, open_allocator: OpenAllocator, settings: Settings, metrics: Metrics | None = None
) -> "DncRc":
    """`open_allocator` is called once a term; what it gives is closed at the term's end."""
    return DncRc(client, open_allocator, settings, metrics or Metrics())


class DncRc:
    """A `Service`."""

    name = "dnc-rc"

    def __init__(
        self, client: Client, open_allocator: OpenAllocator, settings: Settings, metrics: Metrics
    ) -> None:
        self._client = client
        self._open_allocator = open_allocator
        self._settings = settings
        self._metrics = metrics
        self._stop = asyncio.Event()
        self.cluster = settings.cluster
        self.allocator: Allocator | None = None  # while we lead and have taken over

    def stop(self) -> None:
        self._stop.set()

    def leads(self) -> bool:
        return self.allocator is not None

    async def run(self) -> None:
        while not self._stop.is_set():
            try:
                await self._campaign()
            except LeadershipLost as lost:
                log.warning("the lease %s is lost: campaigning anew", lost)

    async def _campaign(self) -> None:
        settings = self._settings
        identity = f"{settings.identity}_{uuid.uuid4().hex[:8]}"
        elector = Elector(self._client, Key(settings.namespace, settings.lease), identity, settings.terms)
        await until(self._stop, elector.acquire())
        if not elector.leads():
            return
        async with elector.leading():
            await self._lead(self._term(identity, elector))

    def _term(self, identity: str, elector: Elector) -> Term:
        settings = self._settings
        return Term(
            settings.cluster,
            settings.namespace,
            identity,
            elector.leads,
            node_grace=settings.node_grace,
            counts_every=settings.counts_every,
        )

    async def _lead(self, term: Term) -> None:
        allocator = self._open_allocator()
        if inspect.isawaitable(allocator):
            allocator = await allocator
        try:
            await self._serve(term, allocator)
        finally:
            self.allocator = None
            await allocator.close()

    async def _serve(self, term: Term, allocator: Allocator) -> None:
        recorder = Recorder(self._client, COMPONENT, term.identity, metrics=self._metrics)
        informers = Informers.of(self._client, term.namespace, self._metrics)
        wakes = Wakes(
            lambda node: controllers.routes.look_at_nnc(node),
            lambda name: controllers.routes.look_at_subnet(name),
        )
        reconcilers = Reconcilers(term, self._client, allocator, informers.stores(), recorder, wakes)
        controllers = Controllers(reconcilers, informers, self._metrics)
        unshown = await self._take_over(reconcilers.adoption)
        if self._stop.is_set():
            return
        for node in unshown:
            controllers.nnc.enqueue(term.nnc_key(node))
        self.allocator = allocator
        migration = Migration(term, self._client, self._settings.migration)
        parts: list[Service] = [recorder, *informers.all(), *controllers.all(), migration]
        await run(*parts, stop=self._stop, patience=self._settings.patience)

    async def _take_over(self, adoption: Adoption) -> set[str]:
        """The whole record, however long the API server or DNC takes: nothing is granted before."""
        unshown = set[str]()

        async def insist() -> None:
            failures = 0
            while True:
                try:
                    unshown.update(await adoption.run())
                except (ApiError, DncError) as problem:
                    failures += 1
                    log.warning("the record is taken over later: %s: %s", type(problem).__name__, problem)
                    await asyncio.sleep(_RETRY.draw(failures))
                else:
                    return

        await until(self._stop, insist())
        return unshown

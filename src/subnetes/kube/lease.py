"""Leader election on a coordination.k8s.io Lease, for whatever must be done by one replica at a time.

    async with elector.leading():       # waits for leadership
        ...                             # cancelled, and LeadershipLost raised, when it cannot be renewed

    Leading(elector, recorder, informer, controller)    # the same as a service of services.run

The decisions are election.py's. The lease is given back after the body has ended.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from subnetes.api.core import Lease
from subnetes.kube.election import Candidacy, Terms
from subnetes.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from subnetes.kube.key import Key
from subnetes.kube.services import Service, run, until

log = logging.getLogger(__name__)

_JITTER = 0.2  # candidates that started together must not collide at every try


class LeadershipLost(Exception):
    """The lease could not be renewed in time, or somebody else has it."""


class Leases(Protocol):
    """What is needed of the client."""

    async def get(self, kind: type[Lease], name: str, namespace: str | None = None) -> Lease: ...
    async def create(self, obj: Lease) -> Lease: ...
    async def update(self, obj: Lease) -> Lease: ...


class Elector:
    def __init__(self, client: Leases, lease: Key, identity: str, terms: Terms | None = None) -> None:
        self._client = client
        self._lease = lease
        self._terms = terms or Terms()
        self._candidacy = Candidacy(lease, identity, self._terms)

    def leads(self) -> bool:
        """Whether we lead at this very moment, also if nothing of ours ran for a while."""
        return self._candidacy.leads(_now())

    async def acquire(self) -> None:
        """Return as the leader; it lasts for the renew deadline, unless `leading` goes on with it."""
        while True:
            await self._attempt()
            if self.leads():
                log.info("%s leads by %s", self._candidacy.identity, self._lease)
                return
            await asyncio.sleep(self._terms.retry_period * (1 + _JITTER * random.random()))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Lead for as long as the body takes; it is cancelled when leadership is lost."""
        if not self.leads():
            await self.acquire()
        body = asyncio.current_task()
        assert body is not None, "only a task can be cancelled"
        cancelled_before = body.cancelling()
        keeping = asyncio.create_task(self._keep())
        keeping.add_done_callback(partial(_cancel_unless_cancelled, body))
        try:
            yield
        except asyncio.CancelledError:
            lost = keeping.done() and not keeping.cancelled()
            if lost and body.uncancel() <= cancelled_before:
                raise LeadershipLost(str(self._lease)) from keeping.exception()
            raise
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self._release()

    async def _keep(self) -> None:
        """Renew until that has failed for too long."""
        while self.leads():
            await asyncio.sleep(min(self._terms.retry_period, self._candidacy.leads_until - _now()))
            if self.leads():  # else somebody may have led meanwhile: the body must end before we try again
                await self._attempt()
        log.warning("%s no longer leads by %s", self._candidacy.identity, self._lease)

    async def _attempt(self) -> None:
        """One try to get or keep the lease; one that hangs leaves time for another before the deadline."""
        deadline = _now() + self._terms.renew_deadline / 2
        if self.leads():
            deadline = min(deadline, self._candidacy.leads_until)
        try:
            async with asyncio.timeout(deadline - _now()):
                await self._bid()
        except ApiError as problem:
            log.info("%s: %s: %s", self._lease, type(problem).__name__, problem)
        except TimeoutError:
            log.info("%s: no answer", self._lease)

    async def _bid(self) -> None:
        if not self.leads():
            await self._look()
        if not await self._written():
            await self._look()
            if self._candidacy.holder() == self._candidacy.identity:
                await self._written()  # an earlier try of ours had come through, only its answer was lost

    async def _written(self) -> bool:
        """Write what may be written; false if the lease is no longer what we saw."""
        sent_at = _now()
        bid = self._candidacy.bid(sent_at, _time())
        if bid is None:
            return True
        write = self._client.update if bid.metadata.resource_version else self._client.create
        try:
            written = await write(bid)
        except (Conflict, AlreadyExists, NotFound):
            return False
        self._candidacy.won(written, sent_at, _now())
        return True

    async def _look(self) -> None:
        try:
            found = await self._client.get(Lease, self._lease.name, self._lease.namespace)
        except NotFound:
            self._candidacy.saw(None, _now())
        else:
            self._candidacy.saw(found, _now())

    async def _release(self) -> None:
        lease = self._candidacy.resign(_now())
        if lease is None:
            return
        try:
            async with asyncio.timeout(self._terms.retry_period):
                await self._client.update(lease)
        except (ApiError, TimeoutError) as problem:
            log.info("%s is not given back and must expire: %s", self._lease, problem or "no answer")


class Leading:
    """Services that run only while we lead; a `Service`. They have ended before the lease is given back."""

    def __init__(self, elector: Elector, *services: Service, patience: float = 20.0) -> None:
        self._elector = elector
        self._services = services
        self._patience = patience
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await until(self._stop, self._elector.acquire())
        if self._elector.leads():
            async with self._elector.leading():
                await run(*self._services, stop=self._stop, patience=self._patience)


def _cancel_unless_cancelled(body: asyncio.Task[Any], keeping: asyncio.Task[None]) -> None:
    if not keeping.cancelled():
        body.cancel()


def _now() -> float:
    """The loop's clock plus the time that the machine slept: that clock stands then, and a lease does not."""
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return asyncio.get_running_loop().time() + asleep


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

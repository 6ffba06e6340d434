"""DNC-RC's part of a migration: stored NNCs are rewritten to the CRD's storage version, the other one leaves.

    CRD: both versions, a webhook, storedVersions [v1alpha, v1beta1]
        ── wait until every API server follows the CRD ── a GET and an empty merge patch of each NNC, in order
        ── the same CRD still? ── status.storedVersions = [v1beta1]

Why one pass is enough. An API server that follows the CRD encodes whatever it writes in the storage version,
and an empty patch is written if what is stored are not the same bytes. So an NNC is in the storage version
once anybody wrote it after the servers followed, and stays so, for at the end the same CRD (uid and
generation) still stands. An NNC that is not in the list was made after it, so by such a server. What is left
are servers that are slow to follow, and requests that they had begun: hence `settle`, as long as a request
may take. Every leader waits that long by its own clock, unless another was through with it.

Why the GET. In the version that is not stored it needs the webhook. Without it, a patch of an NNC that is
stored anew already would still succeed, and wipe its managedFields, which cannot be converted either.

An NNC that cannot be converted is noted and passed over; two in a row mean that the webhook is down.

Which version is the storage version is all that is asked, so a roll-back is done by the same code. An error
never ends the controllers: this tries again. Progress is in migration_progress.py.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from subnetes.api.core import ConfigMap
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import ObjectMetaView
from subnetes.api.migration import HUB, NAME, OLD, Rewriting, rewriting
from subnetes.api.model import View
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.resource import Resource
from subnetes.controllers.migration_progress import (
    CONFIG_MAP,
    DONE,
    REWRITING,
    Progress,
    config_map,
    read,
    remaining,
    resumed,
)
from subnetes.controllers.term import NotLeading, Term
from subnetes.kube.backoff import Backoff
from subnetes.kube.client import Client
from subnetes.kube.errors import ApiError, NotFound, Temporary, Unavailable
from subnetes.kube.patches import MergePatch
from subnetes.kube.services import until

log = logging.getLogger(__name__)

_RETRY = Backoff(first=1.0, cap=300.0)  # of the whole
_AGAIN = Backoff(first=0.2, cap=5.0)  # of one NNC
_TRIES = 5
_EMPTY = MergePatch({})


class NotAll(Temporary):
    """Some NNCs cannot be rewritten as they are; the others were."""


class _Name(View):
    """Which NNC, in whatever namespace."""

    resource: ClassVar = NodeNetworkConfig.resource

    metadata: ObjectMetaView = msgspec.field(default_factory=ObjectMetaView)


@dataclass(frozen=True)
class Pace:
    rate: float = 50.0  # NNCs a second
    settle: float = 60.0  # seconds for all API servers to follow a CRD; a request may last as long
    look_every: float = 30.0  # seconds between two looks at the CRD
    note_objects: int = 100  # progress is written after so many NNCs,
    note_seconds: float = 5.0  # or after so long


class Migration:
    """A `Service`, for as long as a term lasts."""

    name = "migration"

    def __init__(
        self, term: Term, client: Client, pace: Pace, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._term = term
        self._client = client
        self._pace = pace
        self._stop = asyncio.Event()
        self._noted: ConfigMap | None = None
        self._clock = clock
        self._first_look: tuple[Rewriting, float] | None = None

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        await until(self._stop, self._go_on())

    async def _go_on(self) -> None:
        failures = 0
        while True:
            try:
                wait = await self.look()
                failures = 0
            except NotLeading:
                wait = self._pace.look_every  # the process hears of it, and ends us
            except Exception as problem:
                failures += 1
                wait = _RETRY.draw(failures)
                _report(problem, wait)
            await asyncio.sleep(wait)

    async def look(self) -> float:
        """Do what the CRD asks for at this moment; the seconds until the next look."""
        work = rewriting(await self._crd())
        if work is None:
            return self._pace.look_every
        progress = await self._resume(work)
        wait = self._settled_in(work)
        if progress.state != REWRITING and wait > 0:
            return min(wait, self._pace.look_every)
        progress = await self._rewrite_all(progress, work)
        if await self._finished(work):
            await self._note(replace(progress, state=DONE, problem=""))
            log.info("all %d NNCs are stored in %s, and in nothing else", progress.done, work.to)
        return 0.0

    def _settled_in(self, work: Rewriting) -> float:
        """Seconds until a settle is over since we saw this work first; other replicas' clocks say nothing."""
        if self._first_look is None or self._first_look[0] != work:
            self._first_look = work, self._clock()
        return self._first_look[1] + self._pace.settle - self._clock()

    async def _crd(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(CustomResourceDefinition.resource, NAME)
        except NotFound:
            return None

    async def _resume(self, work: Rewriting) -> Progress:
        try:
            self._noted = await self._client.get(ConfigMap, CONFIG_MAP, self._term.namespace)
        except NotFound:
            self._noted = None
        found = read(self._noted)
        progress = resumed(found, work, self._term.identity, self._term.now())
        if found is not None and replace(progress, written=found.written) == found:
            return found
        log.info("NNCs are to be stored in %s: %d are done", work.to, progress.done)
        return await self._note(progress)

    async def _note(self, progress: Progress) -> Progress:
        self._term.must_lead()
        progress = replace(progress, written=self._term.now())
        wanted = config_map(progress, self._term.namespace, self._noted)
        write = self._client.create if self._noted is None else self._client.update
        self._noted = await write(wanted)
        return progress

    async def _rewrite_all(self, progress: Progress, work: Rewriting) -> Progress:
        keys = remaining(progress, await self._keys(work))
        progress = replace(progress, state=REWRITING, total=progress.done + len(keys))
        failed_at: Progress | None = None  # where we were before the last one, if that failed
        refused = 0
        clock = asyncio.get_running_loop().time
        turn = noted_at = clock()
        since = 0
        for key in keys:
            await asyncio.sleep(max(turn - clock(), 0))
            turn = max(turn, clock() - 1.0) + 1 / self._pace.rate
            before = progress
            try:
                await self._rewrite(key, work)
                progress, failed_at = replace(progress, last=key, done=progress.done + 1), None
            except NotLeading:
                raise
            except ApiError as problem:
                if isinstance(problem, Temporary) and failed_at is not None:
                    log.warning(
                        "neither %s nor the one before it can be rewritten: is the webhook down?", key
                    )
                    with suppress(ApiError):
                        await self._note(failed_at)
                    raise
                refused += 1
                why = progress.problem or f"for one {key}: {problem}"
                progress = replace(progress, last=key, problem=why)
                failed_at = before if isinstance(problem, Temporary) else None
            since += 1
            due = since >= self._pace.note_objects or clock() - noted_at >= self._pace.note_seconds
            if due and failed_at is None:
                progress, noted_at, since = await self._note(progress), clock(), 0
                log.info("%d of %d NNCs are stored in %s", progress.done, progress.total, progress.to)
        if refused:
            await self._note(progress)
            raise NotAll(f"{refused} NNCs cannot be rewritten, {progress.problem}")
        return progress

    async def _keys(self, work: Rewriting) -> list[str]:
        """An NNC that cannot be converted fails lists in the version that it is not stored in."""
        try:
            found = await self._client.list(_unstored(work))
        except Unavailable:
            found = await self._client.list(_version(work.to))
        return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found.items]

    async def _rewrite(self, key: str, work: Rewriting) -> None:
        """The same object, stored anew; one that is gone needs none."""
        namespace, _, name = key.partition("/")
        failures = 0
        while True:
            self._term.must_lead()
            try:
                await self._client.get(_unstored(work), name, namespace)
                self._term.must_lead()
                await self._client.patch(_Name, name, _EMPTY, namespace)
            except NotFound as problem:
                if f'"{name}"' in problem.message:
                    return
                raise Temporary(f"{key}: {problem}") from problem  # the kind is not served at this moment
            except NotLeading:
                raise
            except Temporary:
                failures += 1
                if failures >= _TRIES:
                    raise
                await asyncio.sleep(_AGAIN.draw(failures))
            else:
                return

    async def _finished(self, work: Rewriting) -> bool:
        crd = await self._crd()
        if crd is None or rewriting(crd) != work:
            log.info("the CRD %s was changed meanwhile: looking again", NAME)
            return False
        self._term.must_lead()
        document = {
            "metadata": {"resourceVersion": crd["metadata"]["resourceVersion"]},
            "status": {"storedVersions": [work.to]},
        }
        await self._client.patch(
            CustomResourceDefinition.resource, NAME, MergePatch(document), subresource="status"
        )
        return True


def _unstored(work: Rewriting) -> Resource:
    return _version(OLD if work.to == HUB else HUB)


def _version(version: str) -> Resource:
    return replace(NodeNetworkConfig.resource, version=version)


def _report(problem: Exception, wait: float) -> None:
    if isinstance(problem, ApiError):
        log.warning("the migration goes on in %.0f s: %s: %s", wait, type(problem).__name__, problem)
    else:
        log.error("the migration goes on in %.0f s", wait, exc_info=problem)

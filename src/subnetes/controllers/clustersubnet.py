"""ClusterSubnetController: declares subnets to DNC, and says in their status what every agent must know.

read (spec, what DNC says of it, what nodes ask for) → decide (acceptance.py, subnet_status.py, scalers.py,
ipam/exhaustion.py) → one status write. Exhaustion, the scaler and conditions are written at once; figures,
and figures in a condition's text, at most every 30 s and in large clusters less often, for every agent
watches this object. What the user got wrong is a condition and an event, no more.
"""

from dataclasses import dataclass

import msgspec

from subnetes.api import names
from subnetes.api.clustersubnet import ClusterSubnet, ClusterSubnetStatus
from subnetes.api.meta import Condition
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers import declarations, scalers, subnet_status
from subnetes.controllers.acceptance import Acceptance
from subnetes.controllers.adoption import Adoption, standing
from subnetes.controllers.memory import Said
from subnetes.controllers.projection import Projection
from subnetes.controllers.status import containers_of
from subnetes.controllers.subnet_status import Verdict
from subnetes.controllers.term import Api, Events, Stores, Term, Wakes, as_trouble
from subnetes.controllers.waiters import Waiters
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import DncError
from subnetes.kube.controller import Result
from subnetes.kube.errors import NotFound
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch

TOLD_A_SECOND = 50  # agents, of figures that are of no use to them
LOOK_AGAIN = 30.0  # seconds: what is wrong may be mended where nobody tells us of it


@dataclass(frozen=True)
class Parts:
    """What the reconciler is made of."""

    api: Api
    allocator: Allocator
    stores: Stores
    events: Events
    waiters: Waiters
    adoption: Adoption
    projection: Projection
    wakes: Wakes


class ClusterSubnetReconciler:
    def __init__(self, term: Term, parts: Parts) -> None:
        self._term = term
        self._api = parts.api
        self._stores = parts.stores
        self._events = parts.events
        self._adoption = parts.adoption
        self._projection = parts.projection
        self._acceptance = Acceptance(term, parts.allocator, parts.stores, parts.waiters, parts.wakes)
        self._counted_at: dict[Key, float] = {}
        self._said = Said()

    async def reconcile(self, key: Key) -> Result | None:
        subnet = self._stores.subnets.get(key)
        if subnet is None:
            self._forget(key)
            return None
        self._term.must_lead()
        try:
            if subnet.metadata.deletion_timestamp is not None:
                return await self._drain(key, subnet)
            return await self._keep(key, subnet)
        except DncError as problem:
            raise as_trouble(problem) from problem

    def _forget(self, key: Key) -> None:
        self._counted_at.pop(key, None)
        self._acceptance.forget(key)
        self._said.forget(key)

    async def _keep(self, key: Key, subnet: ClusterSubnet) -> Result | None:
        finalizers = subnet.metadata.finalizers or []
        if names.SUBNET_FINALIZER not in finalizers:
            await self._patch(subnet, {"finalizers": [*finalizers, names.SUBNET_FINALIZER]})
            return None
        if await self._import_scaler(subnet):
            return None
        verdict = await self._acceptance.declare(key, subnet)
        if verdict.ready and await self._keep_accepted(subnet):
            return None
        wanted = self._wanted(subnet, verdict)
        wait = await self._write(key, subnet, wanted)
        if not verdict.ready:
            return Result(requeue_after=LOOK_AGAIN)
        return Result(requeue_after=wait) if wait else None

    async def _import_scaler(self, subnet: ClusterSubnet) -> bool:
        """Once, before the subnet has values: those that its nodes have from an older control plane."""
        has_values = subnet.status is not None and subnet.status.scaler is not None
        if has_values or names.IMPORTED_SCALER in (subnet.metadata.annotations or {}):
            return False
        found = scalers.commonest(
            scalers.said(nnc.metadata.annotations)
            for nnc in self._stores.holders(subnet.metadata.name)
            if containers_of(nnc)[0].subnet_name == subnet.metadata.name
        )
        if found is None:
            return False
        await self._patch(subnet, {"annotations": {names.IMPORTED_SCALER: scalers.to_text(found)}})
        return True

    async def _keep_accepted(self, subnet: ClusterSubnet) -> bool:
        """Write down what DNC accepted, for leaders to come; whether that was news."""
        text = declarations.accepted_text(subnet)
        if (subnet.metadata.annotations or {}).get(names.ACCEPTED) == text:
            return False
        await self._patch(subnet, {"annotations": {names.ACCEPTED: text}})
        return True

    def _wanted(self, subnet: ClusterSubnet, verdict: Verdict) -> ClusterSubnetStatus:
        name = subnet.metadata.name
        settled = subnet_status.scaler(subnet, verdict.levels)
        arithmetic = scalers.arithmetic(settled.scaler)
        projected = {
            level.family: self._projection.of(name, level.family, arithmetic) for level in verdict.levels
        }
        now = self._term.now()
        conditions = [*subnet_status.conditions(subnet, verdict, settled, now), *self._conflicts(subnet, now)]
        return subnet_status.compose(subnet, verdict, settled, projected, conditions)

    def _conflicts(self, subnet: ClusterSubnet, now: float) -> list[Condition]:
        planted = self._adoption.conflicts.get(subnet.metadata.name, [])
        planted[:] = [each for each in planted if standing(each, self._holder(each.conflict.nc))]
        return [subnet_status.conflicting(planted, subnet, now)] if planted else []

    def _holder(self, nc: str) -> NodeNetworkConfig | None:
        return next(iter(self._stores.nncs.by("nc", nc)), None)

    async def _write(self, key: Key, subnet: ClusterSubnet, wanted: ClusterSubnetStatus) -> float | None:
        """Write what must be written; the seconds after which figures that wait are due."""
        self._tell(key, subnet, wanted)
        if wanted == subnet.status:
            return None
        now = self._term.now()
        ago = now - self._counted_at.get(key, 0.0)
        pause = max(self._term.counts_every, len(self._stores.nncs) / TOLD_A_SECOND)
        if subnet_status.only_details_differ(subnet.status, wanted) and 0 <= ago < pause:
            return pause - ago
        self._term.must_lead()
        stamped = msgspec.structs.replace(wanted, timestamp=int(now))
        await self._api.update_status(msgspec.structs.replace(subnet, status=stamped))
        self._counted_at[key] = now
        return None

    def _tell(self, key: Key, subnet: ClusterSubnet, wanted: ClusterSubnetStatus) -> None:
        for each in wanted.conditions or ():
            what = (each.reason, each.observed_generation) if subnet_status.is_bad(each) else ()
            if self._said.is_news(key, each.type, what):
                self._events.warning(subnet, each.reason, each.message)
        before = subnet.status.exhausted if subnet.status else None
        if wanted.exhausted and not before:
            self._events.warning(subnet, "Exhausted", "addresses are scarce: nodes give back all idle IPs")
        if before and wanted.exhausted is False:
            self._events.normal(subnet, "Recovered", "there are addresses enough: nodes keep spare IPs again")

    async def _drain(self, key: Key, subnet: ClusterSubnet) -> Result | None:
        """Its nodes let go by themselves, for it no longer matches any; then it goes."""
        if names.SUBNET_FINALIZER not in (subnet.metadata.finalizers or ()):
            return None
        holders = sorted(nnc.metadata.name for nnc in self._stores.holders(subnet.metadata.name))
        why = subnet_status.held_by(holders) if holders else await self._acceptance.withdraw(subnet)
        if why:
            verdict = Verdict(ready=False, reason="InUse", message=why)
            await self._write(key, subnet, self._wanted(subnet, verdict))
            return Result(requeue_after=LOOK_AGAIN)
        left = [each for each in subnet.metadata.finalizers or () if each != names.SUBNET_FINALIZER]
        await self._patch(subnet, {"finalizers": left or None})
        return None

    async def _patch(self, subnet: ClusterSubnet, metadata: dict[str, object]) -> None:
        self._term.must_lead()
        document = {"metadata": {"resourceVersion": subnet.metadata.resource_version, **metadata}}
        try:
            await self._api.patch(
                ClusterSubnet, subnet.metadata.name, MergePatch(document), subnet.metadata.namespace
            )
        except NotFound:
            return

"""ClusterSubnetStates: what agents of old are told of exhaustion, kept in step with the ClusterSubnets.

Only where their CRD is installed, which may happen, and end, at any time. Nothing tells us, so a look is
taken every minute, one for all subnets; until then nothing is asked, whatever the subnets do. What
stands is looked at again every five minutes, for somebody may have changed or deleted it.

What one that somebody else made for a subnet says is ours to say; but it stays theirs, and does not go with
the subnet. Others are left alone.
"""

from dataclasses import dataclass

import msgspec

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.clustersubnetstate import ClusterSubnetState, ClusterSubnetStateStatus
from subnetes.api.meta import ObjectMeta, OwnerReference
from subnetes.api.model import to_builtins
from subnetes.controllers.status import timestamp
from subnetes.controllers.term import Api, Stores, Term
from subnetes.kube.controller import Result
from subnetes.kube.errors import AlreadyExists, BadRequest, NotFound
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch

IS_IT_INSTALLED = 60.0  # seconds between two looks for a CRD that is not there
IS_IT_STILL_SO = 300.0  # seconds between two looks at one that was right
WENT_AWAY = 5.0  # seconds until one is looked at again that was deleted under our hands


@dataclass(frozen=True, slots=True)
class _Done:
    uid: str
    exhausted: bool
    at: float


class SubnetStates:
    def __init__(self, term: Term, api: Api, stores: Stores) -> None:
        self._term = term
        self._api = api
        self._stores = stores
        self._done: dict[Key, _Done] = {}
        self._missed_at: float | None = None  # when the CRD was not there

    async def reconcile(self, key: Key) -> Result | None:
        """Called at every change of the ClusterSubnet; most do not concern it."""
        subnet = self._stores.subnets.get(key)
        if subnet is None or subnet.metadata.deletion_timestamp is not None:
            self._done.pop(key, None)
            return None  # the garbage collector takes its state away
        exhausted = subnet.status.exhausted if subnet.status else None
        if exhausted is None:
            return None
        wait = self._left(key, subnet, exhausted)
        if wait > 0:
            return Result(requeue_after=wait)
        try:
            await self._keep(subnet, exhausted)
        except (NotFound, BadRequest) as problem:
            if isinstance(problem, NotFound) and problem.name:
                return Result(requeue_after=WENT_AWAY)
            if not _says_there_is_none(problem):
                raise
            self._missed_at = self._term.now()
            return Result(requeue_after=IS_IT_INSTALLED)
        self._missed_at = None
        self._done[key] = _Done(subnet.metadata.uid or "", exhausted, self._term.now())
        return Result(requeue_after=IS_IT_STILL_SO)

    def _left(self, key: Key, subnet: ClusterSubnet, exhausted: bool) -> float:
        """The seconds for which there is nothing to do."""
        now, done = self._term.now(), self._done.get(key)
        if self._missed_at is not None:
            return _remaining(self._missed_at, IS_IT_INSTALLED, now)
        if done is None or (done.uid, done.exhausted) != (subnet.metadata.uid or "", exhausted):
            return 0.0
        return _remaining(done.at, IS_IT_STILL_SO, now)

    async def _keep(self, subnet: ClusterSubnet, exhausted: bool) -> None:
        state = await self._found(subnet) or await self._make(subnet)
        made_for = {each.uid for each in state.metadata.owner_references or () if _is_named(each, subnet)}
        if made_for and subnet.metadata.uid not in made_for:
            state = await self._own(state, subnet)
        if state.status is not None and state.status.exhausted == exhausted:
            return
        before = state.status or ClusterSubnetStateStatus()
        said = msgspec.structs.replace(before, exhausted=exhausted, timestamp=timestamp(self._term.now()))
        self._term.must_lead()
        await self._api.update_status(msgspec.structs.replace(state, status=said))

    async def _found(self, subnet: ClusterSubnet) -> ClusterSubnetState | None:
        try:
            return await self._api.get(ClusterSubnetState, subnet.metadata.name, subnet.metadata.namespace)
        except NotFound:
            return None

    async def _make(self, subnet: ClusterSubnet) -> ClusterSubnetState:
        metadata = ObjectMeta(
            name=subnet.metadata.name,
            namespace=subnet.metadata.namespace,
            owner_references=[_owner(subnet)],
        )
        self._term.must_lead()
        try:
            return await self._api.create(ClusterSubnetState(metadata=metadata))
        except AlreadyExists:  # made by somebody else this moment
            return await self._api.get(ClusterSubnetState, metadata.name, metadata.namespace)

    async def _own(self, state: ClusterSubnetState, subnet: ClusterSubnet) -> ClusterSubnetState:
        """What we made for a former subnet of this name goes with this one from now on."""
        others = [each for each in state.metadata.owner_references or () if not _is_named(each, subnet)]
        document = {
            "metadata": {
                "resourceVersion": state.metadata.resource_version,
                "ownerReferences": [to_builtins(each) for each in (*others, _owner(subnet))],
            }
        }
        self._term.must_lead()
        return await self._api.patch(
            ClusterSubnetState, state.metadata.name, MergePatch(document), state.metadata.namespace
        )


def _owner(subnet: ClusterSubnet) -> OwnerReference:
    return OwnerReference(
        api_version=subnet.resource.api_version,
        kind=subnet.resource.kind,
        name=subnet.metadata.name,
        uid=subnet.metadata.uid or "",
    )


def _is_named(owner: OwnerReference, subnet: ClusterSubnet) -> bool:
    """Whether it is a subnet of this name: only what we made has one."""
    mine = _owner(subnet)
    return (owner.api_version, owner.kind, owner.name) == (mine.api_version, mine.kind, mine.name)


def _says_there_is_none(problem: NotFound | BadRequest) -> bool:
    """No such kind, or one on its way out (405)."""
    return isinstance(problem, NotFound) or problem.code == 405


def _remaining(since: float, lasting: float, now: float) -> float:
    """Of an interval; a clock that was set back does not prolong it."""
    return min(max(since + lasting - now, 0.0), lasting)

"""A node that comes back in time: its IPs outlive the NNC that has to make room for a new one.

An object that is being deleted cannot be saved, so a returning Node needs another NNC. Between the two, a
ConfigMap is etcd's record of what the node holds:

    NNC going ── ConfigMap written ── finalizer off ── new NNC ── its status written ── ConfigMap deleted

A replica that takes over at any point finds the record in exactly one place that counts: the old NNC while it
lives, else the ConfigMap until the new NNC has a status, else the new NNC (`is_the_record`).
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from subnetes.api import names
from subnetes.api.core import ConfigMap
from subnetes.api.meta import ObjectMeta
from subnetes.api.model import decode, encode
from subnetes.api.nodenetworkconfig import NetworkContainer, NodeNetworkConfig, NodeNetworkConfigStatus
from subnetes.controllers import status
from subnetes.controllers.term import Api, Term
from subnetes.kube.errors import AlreadyExists, NotFound

_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Stash:
    """What a ConfigMap says."""

    node: str
    uid: str  # of the NNC that it was taken from
    at: float
    containers: tuple[NetworkContainer, ...]


class Returning:
    """The nodes whose record is in a ConfigMap at this moment."""

    def __init__(self, term: Term, api: Api) -> None:
        self._term = term
        self._api = api
        self._stashed_at: dict[str, float] = {}

    def has(self, node: str) -> bool:
        return node in self._stashed_at

    def since(self, node: str) -> float | None:
        return self._stashed_at.get(node)

    def found(self, stash: Stash) -> None:
        """A former leader wrote it."""
        self._stashed_at[stash.node] = stash.at

    async def stash(self, nnc: NodeNetworkConfig) -> None:
        self._term.must_lead()
        wanted = config_map(nnc, self._term.namespace, self._term.now())
        try:
            await self._api.create(wanted)
        except AlreadyExists:  # an earlier try, maybe of somebody else and outdated
            old = await self._api.get(ConfigMap, wanted.metadata.name, self._term.namespace)
            await self._api.update(msgspec.structs.replace(old, data=wanted.data))
        self._stashed_at[nnc.metadata.name] = self._term.now()

    async def restored(self, node: str) -> None:
        """The record is elsewhere, or no longer needed."""
        self._term.must_lead()
        with contextlib.suppress(NotFound):
            await self._api.delete(ConfigMap, name_for(node), self._term.namespace)
        self._stashed_at.pop(node, None)


def name_for(node: str) -> str:
    name = names.RETURNING_PREFIX + node
    if len(name) <= _LONGEST_NAME:
        return name
    return names.RETURNING_PREFIX + hashlib.sha256(node.encode()).hexdigest()


def config_map(nnc: NodeNetworkConfig, namespace: str, now: float) -> ConfigMap:
    record = NodeNetworkConfigStatus(network_containers=status.containers_of(nnc))
    return ConfigMap(
        metadata=ObjectMeta(
            name=name_for(nnc.metadata.name), namespace=namespace, labels={names.RETURNING: "true"}
        ),
        data={
            "node": nnc.metadata.name,
            "uid": nnc.metadata.uid or "",
            "at": status.timestamp(now),
            "status": encode(record).decode(),
        },
    )


def read(found: ConfigMap) -> Stash | None:
    """None: it is not what we write."""
    data = found.data or {}
    try:
        record = decode(NodeNetworkConfigStatus, data["status"].encode())
        at = status.seconds(data["at"])
        return Stash(data["node"], data["uid"], at, tuple(record.network_containers or ()))
    except (KeyError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def is_the_record(stash: Stash, nnc_of: Callable[[str], NodeNetworkConfig | None]) -> bool:
    """Whether the ConfigMap counts, and not the node's NNC."""
    nnc = nnc_of(stash.node)
    if nnc is None:
        return True
    return nnc.metadata.uid != stash.uid and nnc.status is None

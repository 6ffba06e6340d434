"""The node's pool while it is in use: the only place that changes it, and always the journal first.

Whatever speaks for sandboxes (the plugin's socket, Azure's contract) calls `add` or `add_now`, `delete`,
`check` and `gc`; the agent tells it what the NNC grants (`reconcile`) and what to let go (`let_go`).
Everything but `add` is synchronous, so operations cannot interleave: each is journal, then memory, then the
answer.

An attachment is known by (container id, interface) and by nothing else. With no IP free, an ADD waits in line
for the grant in flight: first come, first served, one IP of each serving NC or none.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.cns import reconciliation
from subnetes.cns.answers import Assigned, described, shortage
from subnetes.cns.containers import Container, missing, serving
from subnetes.cns.errors import (
    CnsError,
    JournalError,
    Mismatch,
    NoAddress,
    NotReady,
    UnknownAttachment,
)
from subnetes.cns.holders import HoldersByPod
from subnetes.cns.journal import Containers, Journal, Record
from subnetes.cns.namespaces import HostNamespaces, Namespaces, is_elsewhere, is_gone, seen
from subnetes.ipam import pool as moves
from subnetes.ipam.pool import IP, Freed, Gone, Holder, Key, LetGo, Pool, apply

__all__ = [
    "Assigned",
    "CnsError",
    "Holder",
    "Ipam",
    "JournalError",
    "Mismatch",
    "NoAddress",
    "NotReady",
    "UnknownAttachment",
    "Waiter",
]

log = logging.getLogger(__name__)

DEFAULT_WAIT = 10.0


@dataclass(frozen=True, slots=True)
class Waiter:
    """An ADD in line."""

    holder: Holder
    subnet: str | None
    answer: asyncio.Future[list[Assigned]]


@dataclass
class Counts:
    """What metrics are made of; all only grow."""

    drift: Counter[str] = field(default_factory=Counter)
    """By kind: where the pool and the NNC were found to differ."""
    swept: int = 0
    """Attachments that were released because their sandbox is gone."""
    stale: int = 0
    """Attachments that were released because their pod got another sandbox."""
    starved: int = 0
    """ADDs that no IP came for in time."""


class Ipam:
    """`changed` is called when what the node needs may have changed, `starved` when an ADD got no IP."""

    def __init__(
        self,
        journal: Journal,
        *,
        wait: float = DEFAULT_WAIT,
        namespaces: Namespaces | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.wait = wait
        self.counts = Counts()
        self.changed: Callable[[], None] = lambda: None
        self.starved: Callable[[Holder, str], None] = lambda _holder, _why: None
        self._journal = journal
        self._namespaces = namespaces or HostNamespaces()
        self._clock = clock
        found, self.same_boot = journal.load(clock())
        self.had_journal = found.exists and not found.damaged
        self._pool = found.pool
        self._holders = HoldersByPod(found.pool)
        self._containers = found.containers
        self._open = False
        self._waiting: list[Waiter] = []
        self._drift: frozenset[reconciliation.Drift] = frozenset()

    @property
    def pool(self) -> Pool:
        """A value: it does not change under whoever reads it."""
        return self._pool

    @property
    def containers(self) -> tuple[Container, ...]:
        return self._containers

    def container(self, nc_id: str) -> Container | None:
        return next((each for each in self._containers if each.id == nc_id), None)

    @property
    def waiting(self) -> tuple[Waiter, ...]:
        """The ADDs in line, first come first."""
        return tuple(self._waiting)

    @property
    def drift(self) -> frozenset[reconciliation.Drift]:
        """Where the pool and the NNC differ at present, and nothing but a pod's end can mend it."""
        return self._drift

    def ready(self) -> None:
        """Raises NotReady; an empty pool is no reason, for it fills when it is needed."""
        if not self._open:
            raise NotReady(
                "the agent has not read this node's NodeNetworkConfig yet: is the API server reachable?"
            )
        if all(each.missing for each in self._containers):
            raise NotReady(
                "this node has no network container yet: see the node's NodeNetworkConfig in kube-system, and"
                " whether a ClusterSubnet matches the node"
            )

    def add_now(self, holder: Holder, subnet: str | None = None) -> list[Assigned] | None:
        """What `add` answers where it need not wait, for a fraction of its cost; None where it must.

        Nobody in line is overtaken: while there is one, all go through `add`.
        """
        if self._waiting or not self._open:
            return None
        holder = seen(holder, self._namespaces)
        self._release_stale(holder)
        held = self._held_by(holder, subnet)
        if not held:
            return None
        self.changed()
        return described(held, self._containers)

    async def add(
        self, holder: Holder, subnet: str | None = None, wait: float | None = None
    ) -> list[Assigned]:
        """The attachment's addresses, one of each family; the same again if it has them already.

        Raises NoAddress, or NotReady, when there are none after `wait` seconds.
        """
        holder = seen(holder, self._namespaces)
        waiter = Waiter(holder, subnet, asyncio.get_running_loop().create_future())
        self._release_stale(holder)
        self._waiting.append(waiter)
        try:
            self._serve()
            if not waiter.answer.done():
                self.changed()
                async with asyncio.timeout(self.wait if wait is None else wait):
                    await waiter.answer
            return self._answered(waiter)
        except TimeoutError:
            if _was_answered(waiter):  # at the very moment
                return self._answered(waiter)
            raise self._starved(waiter) from None
        finally:
            self._waiting.remove(waiter)
            self.changed()

    def delete(
        self, container_id: str, ifname: str, pod_uid: str = "", addresses: Iterable[str] = ()
    ) -> list[str]:
        """Release what the attachment holds; the addresses. Of an unknown one there are none: fine.

        An attachment older than the journal is known by its pod's uid and its addresses: by both, for the
        DEL of a pod's former sandbox may come while its present one lives.
        """
        key = (container_id, ifname)
        for waiter in self._waiting:
            if waiter.holder.key == key and not waiter.answer.done():
                waiter.answer.set_exception(_deleted(key))
        held = self._pool.by_key(key)
        if not held and pod_uid:
            key = (f"{reconciliation.LOST}{pod_uid}", ifname)
            thought = set(addresses)
            held = [ip for ip in self._pool.by_key(key) if ip.address in thought]
        if held:
            self._release([key])
        return [ip.address for ip in held]

    def check(self, container_id: str, ifname: str, addresses: Iterable[str]) -> None:
        """Raises UnknownAttachment, or Mismatch if an IP that it holds is not among its addresses."""
        key = (container_id, ifname)
        held = self._pool.by_key(key)
        if not held:
            raise UnknownAttachment(
                f"{_named(key)} holds no IP on this node: delete the pod to have it made anew"
            )
        thought = {address.partition("/")[0] for address in addresses}
        missing = [ip.address for ip in held if ip.address not in thought]
        if missing:
            raise Mismatch(
                f"{_named(key)} holds {', '.join(missing)}, but is thought to have"
                f" {', '.join(sorted(thought)) or 'none'}: delete the pod to have it made anew"
            )

    def gc(self, network: str, valid: set[Key]) -> int:
        """Release every attachment to this network that is not valid; how many there were."""
        lost = [
            holder.key for holder in self.holders() if holder.network == network and holder.key not in valid
        ]
        self._release(lost)
        return len(lost)

    def holders(self) -> list[Holder]:
        """Everyone who holds IPs, each once."""
        return self._pool.holders()

    def sweep(self, lost: Iterable[Holder]) -> int:
        """Release attachments whose sandbox is surely gone (sweep.py decides); how many there were.

        One that was attached anew since it was looked at is not what was found lost.
        """
        keys = [each.key for each in lost if [ip for ip in self._pool.by_key(each.key) if ip.holder == each]]
        self._release(keys)
        self.counts.swept += len(keys)
        return len(keys)

    def reconcile(self, nnc: NodeNetworkConfig, claims: Mapping[str, Holder] | None = None) -> None:
        """Bring the pool in line with what the NNC grants.

        `claims`: addresses that pods say they have. Before anything was handed out, they are theirs: the
        journal that knew their sandboxes is lost.
        """
        outcome = reconciliation.reconcile(self._pool, self._containers, nnc, self._clock())
        if not outcome.containers and not self._open:
            return  # a journal written now would say that no pod is here, which the claims may say later
        changes = list(outcome.moves)
        if claims and not self._open:
            changes += reconciliation.claimed(self._pool, outcome.moves, claims, self._clock())
        self._commit(outcome.containers, *changes)
        self._note(outcome)
        self._open = self._open or bool(outcome.containers)
        self._serve()

    def withdrawn(self) -> None:
        """There is no NNC: after its grace, other nodes have what it granted. Nothing of it is handed out."""
        if not (self._open or self.same_boot):
            return  # nothing was handed out in this boot
        self._commit(missing(self._containers))
        self._open = True

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        """Hand out what the journal knows, though the NNC could not be read: only right in the same boot."""
        if not self.same_boot:
            raise NotReady("the journal is of another boot: the NodeNetworkConfig must be read first")
        self._open = True
        self._serve()

    def let_go(self, ids: Sequence[str]) -> None:
        """Mark IPs as released: before the write that lists them is sent, and never taken back."""
        if ids:
            self._commit(self._containers, LetGo(ids=tuple(ids), at=self._clock()))

    def close(self) -> None:
        self._journal.close()

    def _commit(self, containers: tuple[Container, ...], *changes: moves.Move) -> None:
        """The journal before the memory, and the pool's own rules before both."""
        after = self._pool
        for move in changes:
            after = apply(after, move)
        if self._journal.is_closed:
            self._journal.compact(after, containers)
        else:
            self._append(containers, changes)
        self._pool, self._containers = after, containers
        self._holders.follow(changes)
        if self._journal.is_long:
            self._shorten()

    def _shorten(self) -> None:
        """What failed here has not failed anybody: all of it is in the long file."""
        try:
            self._journal.compact(self._pool, self._containers)
        except JournalError as problem:
            log.error("the journal stays long: %s", problem)

    def _append(self, containers: tuple[Container, ...], changes: Sequence[moves.Move]) -> None:
        records: list[Record] = list(changes)
        if containers != self._containers:
            records.append(Containers(containers))
        if records:
            self._journal.append(*records)

    def _serve(self) -> None:
        """Give what is available to those in line, in their order.

        All who ask for a subnet need the same NCs, so where the first gets nothing nobody overtakes him.
        """
        for waiter in self._waiting:
            if not waiter.answer.done():
                self._try(waiter)

    def _try(self, waiter: Waiter) -> None:
        if not self._open:
            return
        try:
            held = self._held_by(waiter.holder, waiter.subnet)
        except JournalError as problem:
            waiter.answer.set_exception(problem)
            return
        if held:
            waiter.answer.set_result(described(held, self._containers))

    def _held_by(self, holder: Holder, subnet: str | None) -> list[IP]:
        """What the attachment has from now on; nothing, if it has to wait."""
        held = self._pool.by_key(holder.key)
        if held:
            return self._renew(holder, held)
        ncs = serving(self._containers, subnet)
        chosen = [ip for nc in ncs for ip in self._pool.first_available(nc.id)]
        return self._assign(holder, chosen) if ncs and len(chosen) == len(ncs) else []

    def _assign(self, holder: Holder, chosen: list[IP], *before: moves.Move) -> list[IP]:
        ids = tuple(ip.id for ip in chosen)
        self._commit(self._containers, *before, moves.Assigned(ids=ids, holder=holder, at=self._clock()))
        return self._pool.by_key(holder.key)

    def _renew(self, holder: Holder, held: list[IP]) -> list[IP]:
        """A repeated ADD. The sweep must look at the namespace that the sandbox has now, not at a former."""
        if held[0].holder is None or not is_elsewhere(holder, held[0].holder):
            return held
        freed = Freed(container_id=holder.container_id, ifname=holder.ifname, at=self._clock())
        return self._assign(holder, held, freed)

    def _answered(self, waiter: Waiter) -> list[Assigned]:
        """A DEL may have come between the answer and this."""
        given = waiter.answer.result()
        if not self._pool.by_key(waiter.holder.key):
            raise _deleted(waiter.holder.key)
        return given

    def _release(self, keys: Iterable[Key]) -> None:
        """What is not the node's any more is not handed out again."""
        vanished = {drift.ip for drift in self._drift}
        now = self._clock()
        changes: list[moves.Move] = []
        for key in keys:
            changes.append(Freed(container_id=key[0], ifname=key[1], at=now))
            gone = tuple(ip.id for ip in self._pool.by_key(key) if ip.id in vanished)
            if gone:
                changes.append(Gone(ids=gone, at=now))
        if changes:
            before = self._pool
            self._commit(self._containers, *changes)
            if self._drift:
                self._drift = frozenset(d for d in self._drift if d.ip not in before or d.ip in self._pool)
            self._serve()
            self.changed()

    def _release_stale(self, holder: Holder) -> None:
        """The same pod's former sandbox, if its namespace is gone; otherwise the sweep sees to it.

        One that is only known by its pod's address is gone too: a kubelet stops it before it makes another.
        """
        stale = {
            other.key
            for other in self._holders.of(holder.pod_uid)
            if other.ifname == holder.ifname
            and other.container_id != holder.container_id
            and (other.container_id.startswith(reconciliation.LOST) or is_gone(other, self._namespaces))
        }
        if stale:
            self._release(stale)
            self.counts.stale += len(stale)

    def _starved(self, waiter: Waiter) -> CnsError:
        try:
            self.ready()
        except NotReady as problem:
            return problem
        why = shortage(self._pool, self._containers, waiter.subnet)
        self.counts.starved += 1
        self.starved(waiter.holder, why)
        return NoAddress(why)

    def _note(self, outcome: reconciliation.Outcome) -> None:
        """Count each difference once, and say it once."""
        for drift in outcome.drift - self._drift:
            self.counts.drift[drift.kind] += 1
            log.warning("the pool and the NodeNetworkConfig differ: %s", drift.text)
        self._drift = frozenset(drift for drift in outcome.drift if drift.stands)


def _was_answered(waiter: Waiter) -> bool:
    return waiter.answer.done() and not waiter.answer.cancelled()


def _deleted(key: Key) -> NoAddress:
    return NoAddress(f"{_named(key)} was deleted while it waited")


def _named(key: Key) -> str:
    return f"container {key[0]} ({key[1]})"

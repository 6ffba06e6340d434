"""Who leads: what one candidate concludes from the Lease that it sees. Pure; lease.py does as it says.

No clock of another machine is ever trusted. A candidate waits out a lease by its own clock, from the moment
that it saw the record change; the times in the record are for people. A leader counts from the moment that it
sent its last successful write, which nobody can have seen earlier:

    leader      sent ├── renew_deadline ──▶ stops acting
    server           ·  applied
    candidate        ·  ·  saw ├────── duration ──────▶ may take over

As the duration is longer than the deadline, there are never two, however long requests take and whatever is
frozen, as far as local clocks run alike. Who is frozen knows when it wakes: `leads` compares with the clock.
"""

from dataclasses import dataclass
from math import inf

import msgspec

from subnetes.api.core import Lease, LeaseSpec
from subnetes.api.meta import ObjectMeta
from subnetes.kube.key import Key


@dataclass(frozen=True, slots=True)
class Terms:
    """In seconds: how long others wait for a silent leader, when it gives up itself, how often all try."""

    duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.duration > self.renew_deadline > 2 * self.retry_period > 0:
            raise ValueError(f"a lease needs duration > renew_deadline > 2 * retry_period > 0, not {self}")


class Candidacy:
    """One candidate for one lease. `identity` must be its own alone, also among its own past lives."""

    def __init__(self, lease: Key, identity: str, terms: Terms) -> None:
        self._lease = lease
        self.identity = identity
        self.terms = terms
        self._seen: Lease | None = None
        self._seen_at = -inf
        self.leads_until = -inf

    def leads(self, now: float) -> bool:
        return now < self.leads_until

    def saw(self, lease: Lease | None, now: float) -> None:
        """The lease was read, or found missing; a change of its record starts the wait anew."""
        if lease is None or self._seen is None or lease.spec != self._seen.spec:
            self._seen_at = now
        self._seen = lease
        if lease is None or lease.spec.holder_identity != self.identity:
            self.leads_until = -inf

    def holder(self) -> str | None:
        """Who held the lease when it was last seen."""
        return self._seen.spec.holder_identity if self._seen else None

    def bid(self, now: float, time: str) -> Lease | None:
        """The lease to write: new, taken over or renewed; none while somebody else's stands."""
        if self._seen is None:
            metadata = ObjectMeta(name=self._lease.name, namespace=self._lease.namespace)
            return Lease(metadata=metadata, spec=self._record(LeaseSpec(), time, transitions=0))
        spec = self._seen.spec
        if spec.holder_identity == self.identity:
            renewed = self._record(spec, time, spec.lease_transitions or 0, since=spec.acquire_time)
            return msgspec.structs.replace(self._seen, spec=renewed)
        if spec.holder_identity and now < self._seen_at + self._duration_of(spec):
            return None
        taken = self._record(spec, time, transitions=(spec.lease_transitions or 0) + 1)
        return msgspec.structs.replace(self._seen, spec=taken)

    def won(self, lease: Lease, sent_at: float, now: float) -> None:
        """A bid, sent at that time, was accepted."""
        self.saw(lease, now)
        self.leads_until = sent_at + self.terms.renew_deadline

    def resign(self, now: float) -> Lease | None:
        """Stop leading, at once; the lease to write so that others need not wait."""
        led, self.leads_until = self.leads(now), -inf
        if not led or self._seen is None:
            return None
        spec = msgspec.structs.replace(self._seen.spec, holder_identity=None, lease_duration_seconds=1)
        return msgspec.structs.replace(self._seen, spec=spec)

    def _record(self, spec: LeaseSpec, time: str, transitions: int, since: str | None = None) -> LeaseSpec:
        return msgspec.structs.replace(
            spec,
            holder_identity=self.identity,
            lease_duration_seconds=self.terms.duration,
            acquire_time=since or time,
            renew_time=time,
            lease_transitions=transitions,
        )

    def _duration_of(self, spec: LeaseSpec) -> float:
        """What the holder promised, which may not be what we would."""
        return spec.lease_duration_seconds or self.terms.duration

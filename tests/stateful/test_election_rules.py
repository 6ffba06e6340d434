"""Never two leaders: candidates with clocks of their own, requests and answers that may be late or lost.

Each clock is off by its own constant. To lead is what `Candidacy.leads` says by the candidate's own clock, at
every moment, also while it is frozen between two of its steps.
"""

from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from subnetes.api.core import Lease
from subnetes.kube.election import Candidacy, Terms
from subnetes.kube.errors import ApiError, NotFound
from subnetes.kube.key import Key
from tests.harness.leases import LeaseServer

pytestmark = pytest.mark.slow

LEASE = Key("kube-system", "controllers")
WHO = st.integers(0, 2)


@dataclass
class Write:
    lease: Lease
    sent_at: float
    answer: Lease | ApiError | None = None  # None: the server has not got it yet


@dataclass
class Candidate:
    candidacy: Candidacy
    skew: float
    write: Write | None = None
    late: list[Lease] | None = None  # writes that it gave up on, still under way


class Election(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = LeaseServer()
        terms = (Terms(15, 10.0, 2.0), Terms(15, 10.0, 2.0), Terms(6, 5.0, 1.0))
        self.candidates = [
            Candidate(Candidacy(LEASE, f"candidate-{n}", each), skew=n * 12345.6)
            for n, each in enumerate(terms)
        ]

    def clock(self, who: Candidate) -> float:
        return self.now + who.skew

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 4.0, 5.5, 8.0, 16.0]))
    def pass_time(self, seconds: float) -> None:
        """In steps, so that the invariant is asked at every moment that could differ."""
        for _ in range(int(seconds * 2)):
            self.now += 0.5
            self.at_most_one_leads()

    @rule(n=WHO)
    def look(self, n: int) -> None:
        who = self.candidates[n]
        try:
            seen: Lease | None = self.server.get()
        except NotFound:
            seen = None
        who.candidacy.saw(seen, self.clock(who))

    @rule(n=WHO)
    def send_bid(self, n: int) -> None:
        who = self.candidates[n]
        if who.write is None:
            bid = who.candidacy.bid(self.clock(who), f"time {self.now}")
            who.write = Write(bid, self.clock(who)) if bid else None

    @rule(n=WHO)
    def server_gets_bid(self, n: int) -> None:
        write = self.candidates[n].write
        if write is not None and write.answer is None:
            write.answer = self._apply(write.lease)

    @rule(n=WHO)
    def answer_arrives(self, n: int) -> None:
        who = self.candidates[n]
        if who.write is None or who.write.answer is None:
            return
        answer, sent_at, who.write = who.write.answer, who.write.sent_at, None
        if isinstance(answer, Lease):
            who.candidacy.won(answer, sent_at, self.clock(who))

    @rule(n=WHO)
    def give_up_waiting(self, n: int) -> None:
        """The answer is lost; the write may still come through, now or much later."""
        who = self.candidates[n]
        if who.write is not None:
            who.late = [*(who.late or []), *([who.write.lease] if who.write.answer is None else [])]
            who.write = None

    @rule(n=WHO)
    def server_gets_late_bid(self, n: int) -> None:
        who = self.candidates[n]
        if who.late:
            self._apply(who.late.pop())

    @rule(n=WHO)
    def resign(self, n: int) -> None:
        who = self.candidates[n]
        lease = who.candidacy.resign(self.clock(who))
        if lease is not None:
            self._apply(lease)

    @rule(n=WHO)
    def try_normally(self, n: int) -> None:
        """What a healthy candidate does in one go, so that leaders are common."""
        self.give_up_waiting(n)
        self.look(n)
        self.send_bid(n)
        self.server_gets_bid(n)
        self.answer_arrives(n)

    def _apply(self, lease: Lease) -> Lease | ApiError:
        try:
            return (self.server.update if lease.metadata.resource_version else self.server.create)(lease)
        except ApiError as problem:
            return problem

    @invariant()
    def at_most_one_leads(self) -> None:
        leaders = [who.candidacy.identity for who in self.candidates if who.candidacy.leads(self.clock(who))]
        assert len(leaders) <= 1, leaders


TestElection = Election.TestCase
TestElection.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)

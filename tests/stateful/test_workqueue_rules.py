"""The work queue against its promises, for additions, takes and ends in any order."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from subnetes.kube.workqueue import WorkQueue

pytestmark = pytest.mark.slow

KEYS = st.sampled_from("abcd")
SECONDS = st.integers(0, 50).map(float)
CAP = 40.0


class QueueRules(RuleBasedStateMachine):
    """`owed` is the model: the time by which each key must be handed out if a worker asks."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.queue: WorkQueue[str] = WorkQueue(lambda failures: min(2.0**failures, CAP))
        self.owed: dict[str, float] = {}
        self.in_process: set[str] = set()

    def owe(self, key: str, due: float) -> None:
        self.owed[key] = min(due, self.owed.get(key, due))

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self.queue.add(key, self.now)
        self.owe(key, self.now)

    @rule(key=KEYS, delay=SECONDS)
    def add_after(self, key: str, delay: float) -> None:
        self.queue.add_after(key, delay, self.now)
        self.owe(key, self.now + delay)

    @rule(seconds=SECONDS)
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def take(self) -> None:
        taken = self.queue.take(self.now)
        could = {key for key, due in self.owed.items() if due <= self.now} - self.in_process
        if taken is None:
            assert not could
            return
        assert taken.key in could
        assert taken.waited == self.now - self.owed.pop(taken.key)
        self.in_process.add(taken.key)

    @precondition(lambda self: self.in_process)
    @rule(data=st.data(), again_after=st.none() | SECONDS)
    def done(self, data: st.DataObject, again_after: float | None) -> None:
        key = self._end(data)
        self.queue.done(key, self.now, again_after)
        if again_after is not None:
            self.owe(key, self.now + again_after)

    @precondition(lambda self: self.in_process)
    @rule(data=st.data(), at_least=SECONDS)
    def fail(self, data: st.DataObject, at_least: float) -> None:
        key = self._end(data)
        failures = self.queue.failures(key) + 1
        self.queue.failed(key, self.now, at_least)
        self.owe(key, self.now + max(min(2.0**failures, CAP), at_least))

    def _end(self, data: st.DataObject) -> str:
        key = data.draw(st.sampled_from(sorted(self.in_process)))
        self.in_process.remove(key)
        return key

    @invariant()
    def the_next_due_time_is_that_of_the_first_key_that_waits(self) -> None:
        waiting = [due for key, due in self.owed.items() if key not in self.in_process and due > self.now]
        next_due = self.queue.next_due()
        if next_due is not None and next_due > self.now:
            assert next_due == min(waiting)
        elif next_due is None:
            assert not waiting

    def teardown(self) -> None:
        """Nothing is lost: with workers that always succeed, all that is owed is handed out, then nothing."""
        for key in self.in_process:
            self.queue.done(key, self.now)
        owed, handed_out = set(self.owed), set()
        while True:
            while (taken := self.queue.take(self.now)) is not None:
                assert taken.key not in handed_out
                handed_out.add(taken.key)
                self.queue.done(taken.key, self.now)
            due = self.queue.next_due()
            if due is None:
                break
            self.now = due
        assert handed_out == owed


TestWorkQueue = QueueRules.TestCase
TestWorkQueue.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)

"""Leader election as the replicas live through it; the clock jumps."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from subnetes.kube.election import Terms
from subnetes.kube.key import Key
from subnetes.kube.lease import Elector, LeadershipLost, Leading
from tests.harness import virtual_time
from tests.harness.leases import LeaseServer, Line

LEASE = Key("kube-system", "controllers")


class Replica:
    """Leads whenever it can, and tells the others' test when it began and ended."""

    def __init__(self, name: str, server: LeaseServer, diary: list[str]) -> None:
        self.name = name
        self.line = Line(server)
        self.elector = Elector(self.line, LEASE, name, Terms(15, 10.0, 2.0))
        self.diary = diary

    async def lead(self, seconds: float = 10_000) -> None:
        async with self.elector.leading():
            self.diary.append(f"{self.name} leads")
            try:
                await asyncio.sleep(seconds)
            finally:
                self.diary.append(f"{self.name} ends")


def play(story: Callable[[LeaseServer, Replica, Replica], Awaitable[None]]) -> list[str]:
    diary: list[str] = []

    async def main() -> None:
        server = LeaseServer()
        await story(server, Replica("a", server, diary), Replica("b", server, diary))

    virtual_time.run(main())
    return diary


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_only_one_leads_and_the_other_follows_at_once_when_the_lease_is_given_back() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead(100))
        await asyncio.sleep(1)
        second = asyncio.create_task(b.lead())
        await asyncio.sleep(98)
        assert (a.elector.leads(), b.elector.leads()) == (True, False)
        await first
        assert server.get().spec.holder_identity is None
        await asyncio.sleep(3)
        assert (a.elector.leads(), b.elector.leads()) == (False, True)
        assert server.get().spec.lease_transitions == 1
        await cancelled(second)

    assert play(story) == ["a leads", "a ends", "b leads", "b ends"]


def test_a_machine_that_slept_past_its_lease_wakes_as_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        leading = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        assert a.elector.leads()
        awake = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + 20)
        assert not a.elector.leads()
        with pytest.raises(LeadershipLost):
            await leading

    assert play(story) == ["a leads", "a ends"]


def test_a_leader_that_cannot_renew_ends_before_another_begins() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        second = asyncio.create_task(b.lead())
        await asyncio.sleep(60)
        a.line.cut()
        with pytest.raises(LeadershipLost):
            await first
        assert not b.elector.leads()
        assert server.get().spec.holder_identity == "a"
        await asyncio.sleep(20)
        assert b.elector.leads()
        await cancelled(second)

    assert play(story) == ["a leads", "a ends", "b leads", "b ends"]


def test_a_short_break_of_the_line_is_survived_also_if_an_answer_was_lost() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        second = asyncio.create_task(b.lead())
        for _ in range(50):
            a.line.cut()
            await asyncio.sleep(6)
            a.line.mend()
            await asyncio.sleep(13)
        assert a.elector.leads()
        await cancelled(second)
        await cancelled(first)

    assert play(story) == ["a leads", "a ends"]


def test_a_leader_that_finds_the_lease_in_other_hands_ends_at_once() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        lease = server.get()
        lease.spec.holder_identity = "somebody"
        server.update(lease)
        began = virtual_time.now()
        with pytest.raises(LeadershipLost):
            await first
        assert virtual_time.now() - began < 3

    assert play(story) == ["a leads", "a ends"]


def test_a_frozen_replica_knows_that_it_no_longer_leads_and_does_not_take_up_where_it_was() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        loop.freeze(30)
        assert not a.elector.leads()
        with pytest.raises(LeadershipLost):
            await first
        assert virtual_time.now() < 1000 + 60 + 30 + 1

    assert play(story) == ["a leads", "a ends"]


def test_being_cancelled_from_outside_is_not_a_loss_and_gives_the_lease_back() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(60)
        await cancelled(first)
        assert server.get().spec.holder_identity is None

    assert play(story) == ["a leads", "a ends"]


def test_services_that_need_leadership_end_before_the_lease_is_given_back() -> None:
    class Work:
        def __init__(self, server: LeaseServer) -> None:
            self.server = server
            self.asked = asyncio.Event()
            self.holder_at_end: str | None = None

        def stop(self) -> None:
            self.asked.set()

        async def run(self) -> None:
            await self.asked.wait()
            await asyncio.sleep(5)
            self.holder_at_end = self.server.get().spec.holder_identity

    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        work = Work(server)
        leading = Leading(a.elector, work)
        running = asyncio.create_task(leading.run())
        await asyncio.sleep(60)
        leading.stop()
        await running
        assert work.holder_at_end == "a"
        assert server.get().spec.holder_identity is None

    play(story)


def test_services_that_wait_for_leadership_can_be_stopped() -> None:
    async def story(server: LeaseServer, a: Replica, b: Replica) -> None:
        first = asyncio.create_task(a.lead())
        await asyncio.sleep(1)
        leading = Leading(b.elector)
        running = asyncio.create_task(leading.run())
        await asyncio.sleep(60)
        leading.stop()
        await running
        assert server.get().spec.holder_identity == "a"
        await cancelled(first)

    play(story)


@pytest.mark.parametrize("terms", [(10, 10.0, 2.0), (15, 4.0, 2.0), (15, 10.0, 0.0)])
def test_terms_that_could_make_two_leaders_are_refused(terms: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="a lease needs"):
        Terms(*terms)

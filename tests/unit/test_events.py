"""What becomes of events: correlated, written in the background, never in the caller's way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import CollectorRegistry

from subnetes.api.core import ConfigMap, Event, Node, ObjectReference
from subnetes.api.meta import ObjectMeta, ObjectMetaView
from subnetes.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound, Unavailable
from subnetes.kube.event_correlation import COMBINED, Correlator, Happening, Limits, Occurrence
from subnetes.kube.events import Recorder, reference_to
from subnetes.kube.metrics import Metrics
from subnetes.kube.patches import MergePatch
from tests.harness import virtual_time

POOL = ConfigMap(metadata=ObjectMeta(name="pool", namespace="default", uid="u1"))


def happening(message: str = "grew", reason: str = "Scaled", name: str = "pool") -> Happening:
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace="default", name=name)
    return Happening(about, "Normal", reason, message)


class EventServer:
    """Keeps events; `latency` seconds a call, and refuses with what is in `refusals`."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.calls: list[str] = []
        self.latency = 0.0
        self.refusals: list[ApiError] = []

    async def create(self, obj: Event) -> Event:
        await self._travel("create")
        if obj.metadata.name in self.events:
            raise AlreadyExists("it exists")
        self.events[obj.metadata.name] = obj
        return obj

    async def patch(
        self, kind: type[Event], name: str, patch: MergePatch, namespace: str | None = None
    ) -> Event:
        await self._travel("patch")
        if name not in self.events:
            raise NotFound("forgotten")
        document: Any = patch.document
        event = self.events[name]
        event.count, event.message = document["count"], document["message"]
        event.last_timestamp = document["lastTimestamp"]
        return event

    def counts(self) -> dict[str, int | None]:
        return {event.message: event.count for event in self.events.values()}

    async def _travel(self, call: str) -> None:
        self.calls.append(call)
        await asyncio.sleep(self.latency)
        if self.refusals:
            raise self.refusals.pop(0)


def tell(story: Callable[[EventServer, Recorder], Awaitable[None]], capacity: int = 100) -> CollectorRegistry:
    """Run a recorder beside the story, and stop it well."""
    registry = CollectorRegistry()

    async def main() -> None:
        server = EventServer()
        recorder = Recorder(server, "subnetes", "node-1", capacity=capacity, metrics=Metrics(registry))
        running = asyncio.create_task(recorder.run())
        await story(server, recorder)
        recorder.stop()
        await running

    virtual_time.run(main())
    return registry


def dropped(registry: CollectorRegistry, why: str) -> float:
    return registry.get_sample_value("events_dropped_total", {"why": why}) or 0.0


def test_the_same_thing_again_counts_the_first_event_up() -> None:
    correlator = Correlator()
    first = correlator.correlate(happening(), now=1000)
    assert first is not None
    assert (first.count, first.first, first.last) == (1, 1000, 1000)
    again = correlator.correlate(happening(), now=1060)
    assert again is not None
    assert (again.name, again.count, again.first, again.last) == (first.name, 2, 1000, 1060)


def test_different_things_are_different_events() -> None:
    correlator = Correlator()
    several = [happening(), happening(message="shrank"), happening(reason="Moved"), happening(name="other")]
    found = [correlator.correlate(each, now=1000) for each in several]
    assert len({each.name for each in found if each}) == 4


def test_many_similar_messages_are_combined_until_the_window_has_passed() -> None:
    correlator = Correlator(Limits(different_messages=3, window=600))

    def say(message: str, now: float) -> Occurrence:
        occurrence = correlator.correlate(happening(message), now)
        assert occurrence is not None
        return occurrence

    assert [say(f"m{n}", now=1000).message for n in range(3)] == ["m0", "m1", "m2"]
    combined = [say(f"m{n}", now=1001) for n in (3, 4)]
    assert combined[0].name == combined[1].name
    assert (combined[1].message, combined[1].count) == (COMBINED + "m4", 2)
    assert say("m0", now=1002).message == "m0", "what had an event before still has it"
    assert say("m5", now=1601).message == "m5"


def test_an_object_has_a_budget_that_refills() -> None:
    correlator = Correlator(Limits(burst=5, refill=100))
    assert [correlator.correlate(happening(), 1000) is not None for _ in range(7)] == [True] * 5 + [False] * 2
    assert correlator.correlate(happening(name="other"), 1000) is not None
    assert correlator.correlate(happening(), 1099) is None
    assert correlator.correlate(happening(), 1100) is not None
    assert correlator.correlate(happening(), 1100) is None
    assert correlator.correlate(happening(), 500) is None, "a clock set back refills nothing"


def test_what_is_remembered_is_bounded() -> None:
    correlator = Correlator(Limits(remembered=2))
    first = correlator.correlate(happening(name="a"), 1000)
    for name in ("b", "c"):
        correlator.correlate(happening(name=name), 1000)
    again = correlator.correlate(happening(name="a"), 1001)
    assert first is not None
    assert again is not None
    assert again.name != first.name
    assert again.count == 1


def test_an_event_says_all_that_people_need() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        recorder.warning(POOL, "Exhausted", "no IPs left")
        await asyncio.sleep(1)
        (event,) = server.events.values()
        assert (event.type, event.reason, event.message, event.count) == (
            "Warning",
            "Exhausted",
            "no IPs left",
            1,
        )
        assert event.metadata.namespace == "default"
        assert event.metadata.name.startswith("pool.")
        about = event.involved_object
        assert (about.kind, about.name, about.uid, about.api_version) == ("ConfigMap", "pool", "u1", "v1")
        assert (event.reporting_component, event.reporting_instance) == ("subnetes", "node-1")
        assert event.first_timestamp == event.last_timestamp

    tell(story)


def test_an_event_about_a_cluster_wide_object_is_in_the_default_namespace() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        recorder.normal(Node(metadata=ObjectMetaView(name="node-1")), "Ready", "all set up")
        await asyncio.sleep(1)
        (event,) = server.events.values()
        assert (event.metadata.namespace, event.involved_object.namespace) == ("default", "")

    tell(story)


def test_what_piles_up_while_the_server_is_slow_becomes_one_write() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        server.latency = 10.0
        for _ in range(10):
            recorder.normal(POOL, "Scaled", "grew")
            await asyncio.sleep(0.1)
        await asyncio.sleep(100)
        assert server.calls == ["create", "patch"]
        assert server.counts() == {"grew": 10}

    tell(story)


def test_an_event_that_kubernetes_forgot_is_created_again() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        recorder.normal(POOL, "Scaled", "grew")
        await asyncio.sleep(1)
        server.events.clear()
        recorder.normal(POOL, "Scaled", "grew")
        await asyncio.sleep(1)
        assert server.counts() == {"grew": 2}

    tell(story)


def test_events_wait_for_a_server_that_is_away() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        server.refusals = [Unavailable("away")] * 5
        recorder.normal(POOL, "Scaled", "grew")
        recorder.normal(POOL, "Scaled", "shrank")
        await asyncio.sleep(100)
        assert server.counts() == {"grew": 1, "shrank": 1}

    registry = tell(story)
    assert registry.get_sample_value("events_sent_total") == 2


def test_a_refused_event_is_dropped_and_counted() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        server.refusals = [Forbidden("not yours")]
        recorder.normal(POOL, "Scaled", "grew")
        recorder.normal(POOL, "Scaled", "shrank")
        await asyncio.sleep(1)
        assert server.counts() == {"shrank": 1}

    assert dropped(tell(story), "refused") == 1


def test_a_full_queue_drops_and_counts() -> None:
    async def story(server: EventServer, recorder: Recorder) -> None:
        for number in range(5):
            recorder.normal(POOL, f"Reason{number}", "x")

    assert dropped(tell(story, capacity=3), "queue_full") == 2


def test_stopping_writes_what_is_pending() -> None:
    servers: list[EventServer] = []

    async def story(server: EventServer, recorder: Recorder) -> None:
        servers.append(server)
        server.latency = 1.0
        for number in range(5):
            recorder.normal(POOL, f"Reason{number}", str(number))

    tell(story)
    assert servers[0].counts() == {str(number): 1 for number in range(5)}


def test_events_that_a_cancelled_recorder_could_not_write_are_counted() -> None:
    registry = CollectorRegistry()

    async def main() -> None:
        server = EventServer()
        server.latency = 1000.0
        recorder = Recorder(server, "subnetes", "node-1", metrics=Metrics(registry))
        running = asyncio.create_task(recorder.run())
        recorder.normal(POOL, "Scaled", "grew")
        recorder.normal(POOL, "Scaled", "shrank")
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])

    virtual_time.run(main())
    assert dropped(registry, "shutdown") == 2


def test_a_reference_is_taken_as_it_is() -> None:
    about = ObjectReference(kind="Pod", name="p")
    assert reference_to(about) is about

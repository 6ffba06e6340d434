"""The controller: when a reconciler is called, how often, and what its end means. The clock jumps."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from subnetes.kube.backoff import Backoff
from subnetes.kube.controller import LAST_RESORT, Controller, Reconciler, Result
from subnetes.kube.errors import Invalid, TooManyRequests, Unavailable
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.metrics import Metrics
from tests.harness import virtual_time
from tests.harness.collection import Collection

A, B = Key("default", "a"), Key("default", "b")


class Calls:
    """A reconciler that notes when it was called, and ends as it is told."""

    def __init__(self, *ends: Exception | Result | None, takes: float = 0.0) -> None:
        self.ends = list(ends)
        self.takes = takes
        self.at: list[float] = []
        self.running: Counter[Key] = Counter()
        self.most_at_once = 0

    async def __call__(self, key: Key) -> Result | None:
        self.at.append(virtual_time.now() - 1000)
        self.running[key] += 1
        assert self.running[key] == 1, "one key is never processed twice at once"
        self.most_at_once = max(self.most_at_once, self.running.total())
        await asyncio.sleep(self.takes)
        self.running[key] -= 1
        end = self.ends.pop(0) if self.ends else None
        if isinstance(end, Exception):
            raise end
        return end


def drive(
    reconcile: Reconciler, story: Callable[[Controller], Awaitable[None]], metrics: Metrics | None = None
) -> None:
    async def main() -> None:
        backoff = Backoff(1, 8, jitter=0)
        controller = Controller("things", reconcile, workers=3, backoff=backoff, metrics=metrics)
        running = asyncio.create_task(controller.run())
        await story(controller)
        controller.stop()
        await running

    virtual_time.run(main())


def test_a_burst_is_one_call_and_a_change_during_it_one_more() -> None:
    calls = Calls(takes=10)

    async def story(controller: Controller) -> None:
        for _ in range(50):
            controller.enqueue(A)
        await asyncio.sleep(5)
        for _ in range(50):
            controller.enqueue(A)
        await asyncio.sleep(100)

    drive(calls, story)
    assert calls.at == [0, 10]


def test_workers_are_bounded() -> None:
    calls = Calls(takes=1)

    async def story(controller: Controller) -> None:
        for number in range(10):
            controller.enqueue(Key("default", str(number)))
        await asyncio.sleep(100)

    drive(calls, story)
    assert calls.most_at_once == 3
    assert calls.at == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


@pytest.mark.parametrize("problem", [Unavailable("away"), ZeroDivisionError()])
def test_errors_are_retried_with_a_growing_delay_up_to_the_cap(problem: Exception) -> None:
    calls = Calls(*[problem] * 6)

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(1000)

    drive(calls, story)
    assert calls.at == pytest.approx([0, 1, 3, 7, 15, 23, 31])


def test_a_retry_waits_as_long_as_the_server_asked() -> None:
    calls = Calls(TooManyRequests("later", retry_after=20.0))

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(1000)

    drive(calls, story)
    assert calls.at == pytest.approx([0, 20])


def test_a_permanent_error_waits_for_a_change(caplog: pytest.LogCaptureFixture) -> None:
    calls = Calls(Invalid("never"))

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(LAST_RESORT - 1)
        assert calls.at == [0]
        controller.enqueue(A)
        await asyncio.sleep(2 * LAST_RESORT)

    drive(calls, story)
    assert calls.at == [0, LAST_RESORT - 1]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_a_permanent_error_is_looked_at_again_in_the_end() -> None:
    calls = Calls(Invalid("not yet"))

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(2 * LAST_RESORT)

    drive(calls, story)
    assert calls.at == [0, LAST_RESORT]


def test_requeue_after_comes_again_and_an_earlier_wish_wins() -> None:
    calls = Calls(Result(requeue_after=100), Result(requeue_after=100))

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(10)
        controller.enqueue(A, after=50)
        controller.enqueue(A, after=70)
        await asyncio.sleep(1000)

    drive(calls, story)
    assert calls.at == pytest.approx([0, 60, 160])


def test_a_reconciler_that_awaited_something_cancelled_is_retried() -> None:
    called = []

    async def reconcile(key: Key) -> None:
        called.append(key)
        if len(called) == 1:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

    async def story(controller: Controller) -> None:
        controller.enqueue(A)
        await asyncio.sleep(100)

    drive(reconcile, story)
    assert called == [A, A]


def test_stopping_finishes_what_is_in_process_and_starts_nothing_new() -> None:
    finished = []

    async def reconcile(key: Key) -> None:
        await asyncio.sleep(5)
        finished.append(key.name)

    async def story(controller: Controller) -> None:
        for number in range(5):
            controller.enqueue(Key("default", str(number)))
        await asyncio.sleep(1)

    drive(reconcile, story)
    assert sorted(finished) == ["0", "1", "2"]


def test_nothing_is_reconciled_before_the_informers_have_synced() -> None:
    calls = Calls()

    async def main() -> None:
        server = Collection()
        server.put("a")
        server.latency = 30.0
        informer = Informer("things", server)
        controller = Controller("things", calls)
        controller.follow(informer)
        controller.enqueue(B)
        tasks = [asyncio.create_task(informer.run()), asyncio.create_task(controller.run())]
        await asyncio.sleep(29)
        assert calls.at == []
        await asyncio.sleep(100)
        controller.stop()
        informer.stop()
        await asyncio.gather(*tasks)

    virtual_time.run(main())
    assert len(calls.at) == 2


def test_a_controller_can_stop_before_its_informers_have_synced() -> None:
    async def main() -> None:
        informer = Informer("things", Collection())
        controller = Controller("things", Calls())
        controller.follow(informer)
        running = asyncio.create_task(controller.run())
        await asyncio.sleep(1)
        controller.stop()
        await running

    virtual_time.run(main())


def test_what_an_object_concerned_and_what_it_concerns_now_are_both_reconciled() -> None:
    reconciled: list[str] = []

    async def reconcile(key: Key) -> None:
        reconciled.append(key.name)

    async def main() -> None:
        server = Collection()
        server.put("pod", node="n1")
        informer = Informer("pods", server)
        controller = Controller("nodes", reconcile)
        controller.follow(informer, lambda pod: [Key("", pod["node"])])
        tasks = [asyncio.create_task(informer.run()), asyncio.create_task(controller.run())]
        await asyncio.sleep(1)
        server.put("pod", node="n2")
        await asyncio.sleep(1)
        controller.stop()
        informer.stop()
        await asyncio.gather(*tasks)

    virtual_time.run(main())
    assert reconciled == ["n1", "n1", "n2"]


def test_metrics_count_depth_latency_duration_and_retries() -> None:
    registry = CollectorRegistry()
    calls = Calls(Unavailable("away"), takes=2)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels or {"name": "things"})

    async def story(controller: Controller) -> None:
        for number in range(5):
            controller.enqueue(Key("default", str(number)))
        await asyncio.sleep(1)
        assert value("workqueue_depth") == 2
        assert value("controller_active_workers", controller="things") == 3
        await asyncio.sleep(100)

    drive(calls, story, Metrics(registry))
    assert value("workqueue_depth") == 0
    assert value("controller_active_workers", controller="things") == 0
    assert value("workqueue_adds_total") == 5
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_queue_duration_seconds_sum") == pytest.approx(2 + 2)
    assert value("workqueue_work_duration_seconds_sum") == pytest.approx(6 * 2)
    assert value("controller_reconcile_total", controller="things", result="success") == 5
    assert value("controller_reconcile_total", controller="things", result="temporary_error") == 1

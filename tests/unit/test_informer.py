"""The informer's manners, one by one, against a server in memory and with a clock that jumps."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client import CollectorRegistry

from subnetes.kube.backoff import Backoff
from subnetes.kube.errors import Forbidden, NotFound, TooManyRequests, Unavailable
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.metrics import Metrics
from tests.harness import virtual_time
from tests.harness.collection import Collection, Thing

Story = Callable[[Collection, Informer[Thing]], Awaitable[None]]
Told = list[tuple[str | None, str | None]]


def tell(story: Story, metrics: Metrics | None = None) -> None:
    """Run an informer beside the story."""

    async def main() -> None:
        server = Collection()
        informer = Informer("things", server, backoff=Backoff(1, 60, jitter=0), metrics=metrics)
        await story(server, informer)

    virtual_time.run(main())


def listen(informer: Informer[Thing]) -> Told:
    told: Told = []
    informer.on_change(lambda old, new: told.append((name(old), name(new))))
    return told


def name(obj: Thing | None) -> str | None:
    return None if obj is None else obj["metadata"]["name"] + obj.get("mark", "")


async def start(informer: Informer[Thing]) -> asyncio.Task[None]:
    running = asyncio.create_task(informer.run())
    await informer.synced()
    await asyncio.sleep(0.1)
    return running


async def finish(informer: Informer[Thing], running: asyncio.Task[None]) -> None:
    informer.stop()
    await running


def test_it_has_synced_once_the_whole_list_is_in_the_store() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.put("a")
        server.latency = 2.0
        running = asyncio.create_task(informer.run())
        await asyncio.sleep(1.9)
        assert not informer.has_synced()
        assert informer.silence() == float("inf")
        await informer.synced()
        assert informer.store.keys() == [Key("default", "a")]
        await finish(informer, running)

    tell(story)


def test_handlers_are_told_the_old_and_the_new_state() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        told = listen(informer)
        server.put("a")
        running = await start(informer)
        server.put("a", mark="!")
        await asyncio.sleep(1)
        server.delete("a")
        await asyncio.sleep(1)
        assert told == [(None, "a"), ("a", "a!"), ("a!", None)]
        await finish(informer, running)

    tell(story)


def test_a_dropped_watch_resumes_from_the_last_event_without_a_list() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        running = await start(informer)
        server.put("a")
        await asyncio.sleep(1)
        server.interrupt(Unavailable("reset"))
        server.put("b")
        await asyncio.sleep(5)
        assert server.lists == 1
        assert server.watches == ["100", "101"]
        assert len(informer.store) == 2
        await finish(informer, running)

    tell(story)


def test_bookmarks_move_the_place_to_resume_from() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        running = await start(informer)
        for _ in range(3):
            server.bookmark()
        await asyncio.sleep(1)
        server.compact()
        server.interrupt()
        await asyncio.sleep(5)
        assert (server.lists, server.watches) == (1, ["100", "103"])
        await finish(informer, running)

    tell(story)


def test_after_a_compaction_it_lists_again_and_tells_what_vanished() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        told = listen(informer)
        for each in "abc":
            server.put(each)
        running = await start(informer)
        told.clear()
        server.interrupt(Unavailable("reset"))
        server.delete("a")
        server.put("b", mark="!")
        server.put("d")
        server.compact()
        await asyncio.sleep(10)
        assert server.lists == 2
        assert told == [("a", None), ("b", "b!"), (None, "d")]
        await finish(informer, running)

    tell(story)


def test_a_server_restored_from_an_older_backup_is_believed() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.put("a")
        backup, version = dict(server.things), server.version
        running = await start(informer)
        server.put("b")
        await asyncio.sleep(1)
        server.restore(backup, version)
        await asyncio.sleep(10)
        assert informer.store.keys() == [Key("default", "a")]
        await finish(informer, running)

    tell(story)


def test_failures_are_repeated_ever_more_slowly_until_the_first_event() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.refusals = [NotFound("no such kind yet"), Forbidden("no right yet"), Unavailable("restarting")]
        began = virtual_time.now()
        running = asyncio.create_task(informer.run())
        await informer.synced()
        assert virtual_time.now() - began == pytest.approx(1 + 2 + 4)
        server.put("a")
        await asyncio.sleep(1)
        server.interrupt(Unavailable("reset"))
        await asyncio.sleep(1.01)
        assert len(server.watches) == 2, "the backoff began anew"
        await finish(informer, running)

    tell(story)


def test_it_waits_as_long_as_the_server_asks() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.refusals = [TooManyRequests("later", retry_after=33.0)]
        began = virtual_time.now()
        running = asyncio.create_task(informer.run())
        await informer.synced()
        assert virtual_time.now() - began == pytest.approx(33)
        await finish(informer, running)

    tell(story)


def test_a_server_that_ends_every_watch_at_once_is_not_stormed() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        running = await start(informer)
        for _ in range(6000):
            server.interrupt()
            await asyncio.sleep(0.01)
        assert len(server.watches) < 8
        await finish(informer, running)

    tell(story)


def test_a_connection_that_died_unnoticed_is_given_up() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.deaf = True
        running = await start(informer)
        server.deaf = False
        server.put("a")
        await asyncio.sleep(140)
        assert len(informer.store) == 0
        await asyncio.sleep(20)
        assert len(informer.store) == 1
        assert server.lists == 1
        await finish(informer, running)

    tell(story)


def test_a_slow_handler_delays_nobody_and_hears_merged_changes() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        quick = listen(informer)
        slow: Told = []

        async def slowly(old: Thing | None, new: Thing | None) -> None:
            await asyncio.sleep(10)
            slow.append((name(old), name(new)))

        informer.on_change(slowly)
        running = await start(informer)
        for number in range(5):
            server.put("a", mark=str(number))
            server.put("b")
            server.delete("b")
            await asyncio.sleep(1)
        assert (None, "b") in quick
        assert [new for _, new in quick if new not in ("b", None)] == ["a0", "a1", "a2", "a3", "a4"]
        await asyncio.sleep(60)
        assert slow == [(None, "a0"), ("a0", "a4")]
        await finish(informer, running)

    tell(story)


def test_an_error_in_a_handler_surfaces() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        def bad(old: Thing | None, new: Thing | None) -> None:
            raise ZeroDivisionError

        informer.on_change(bad)
        server.put("a")
        with pytest.raises(ExceptionGroup) as caught:
            await informer.run()
        assert caught.group_contains(ZeroDivisionError)

    tell(story)


def test_a_handler_cannot_be_added_too_late() -> None:
    async def story(server: Collection, informer: Informer[Thing]) -> None:
        running = await start(informer)
        with pytest.raises(RuntimeError, match="runs already"):
            listen(informer)
        await finish(informer, running)

    tell(story)


def test_metrics_tell_the_age_of_the_last_contact_and_the_failures() -> None:
    registry = CollectorRegistry()

    async def story(server: Collection, informer: Informer[Thing]) -> None:
        server.put("a")
        server.refusals = [Unavailable("no")]
        running = await start(informer)
        await asyncio.sleep(20)
        here = {"informer": "things"}
        assert registry.get_sample_value("informer_store_objects", here) == 1
        assert registry.get_sample_value("informer_last_contact_seconds", here) == pytest.approx(20.1)
        assert registry.get_sample_value("informer_lists_total", here) == 1
        failures = here | {"error": "Unavailable"}
        assert registry.get_sample_value("informer_failures_total", failures) == 1
        await finish(informer, running)

    tell(story, Metrics(registry))

"""How services start together and stop in order."""

import asyncio
import os
import signal
from collections.abc import Sequence

import pytest

from subnetes.kube.services import run, stop_on_signals
from tests.harness import virtual_time


class Noted:
    """A service that notes what happens to it; `finishing` seconds pass between stop and the end."""

    def __init__(self, name: str, notes: list[str], finishing: float = 1.0) -> None:
        self.name = name
        self.notes = notes
        self.finishing = finishing
        self.asked = asyncio.Event()

    def stop(self) -> None:
        self.notes.append(f"{self.name} asked")
        self.asked.set()

    async def run(self) -> None:
        try:
            await self.asked.wait()
            await asyncio.sleep(self.finishing)
            self.notes.append(f"{self.name} finished")
        except asyncio.CancelledError:
            self.notes.append(f"{self.name} cancelled")
            raise


class Failing(Noted):
    async def run(self) -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError


class Ending(Noted):
    async def run(self) -> None:
        await asyncio.sleep(5)


async def stop_after(seconds: float, services: Sequence[Noted], patience: float = 20.0) -> float:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    await run(*services, stop=stop, patience=patience)
    return virtual_time.now() - 1000


def test_services_stop_from_the_last_to_the_first_each_after_the_other_has_ended() -> None:
    notes: list[str] = []
    took = virtual_time.run(stop_after(10, [Noted(name, notes) for name in "abc"]))
    assert notes == ["c asked", "c finished", "b asked", "b finished", "a asked", "a finished"]
    assert took == pytest.approx(13)


def test_a_service_that_does_not_end_in_time_is_cancelled_and_the_others_still_stop_well() -> None:
    notes: list[str] = []
    services = [Noted("a", notes, finishing=0.5), Noted("b", notes, finishing=1000)]
    took = virtual_time.run(stop_after(10, services, patience=7))
    assert notes == ["b asked", "b cancelled", "a asked", "a finished"]
    assert took == pytest.approx(10 + 7 + 0.5)


def test_one_failed_service_stops_all_and_its_error_surfaces() -> None:
    notes: list[str] = []
    with pytest.raises(ZeroDivisionError):
        virtual_time.run(stop_after(10, [Noted("a", notes), Failing("b", notes), Noted("c", notes)]))
    assert notes == ["c cancelled", "a cancelled"]


def test_several_errors_surface_together() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        virtual_time.run(stop_after(10, [Failing("a", []), Failing("b", [])]))
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError, ZeroDivisionError]


def test_a_service_that_ends_unasked_is_a_failure() -> None:
    notes: list[str] = []
    with pytest.raises(RuntimeError, match="b ended unasked"):
        virtual_time.run(stop_after(10, [Noted("a", notes), Ending("b", notes)]))
    assert notes == ["a cancelled"]


def test_cancelling_the_whole_cancels_all_in_order() -> None:
    notes: list[str] = []

    async def main() -> None:
        whole = asyncio.create_task(stop_after(1000, [Noted("a", notes), Noted("b", notes)]))
        await asyncio.sleep(1)
        whole.cancel()
        with pytest.raises(asyncio.CancelledError):
            await whole

    virtual_time.run(main())
    assert notes == ["b cancelled", "a cancelled"]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_asks_for_the_stop_and_the_next_one_is_not_ours(sign: signal.Signals) -> None:
    stop = stop_on_signals()
    assert not stop.is_set()
    os.kill(os.getpid(), sign)
    async with asyncio.timeout(10):
        await stop.wait()
    loop = asyncio.get_running_loop()
    assert not loop.remove_signal_handler(signal.SIGTERM)
    assert not loop.remove_signal_handler(signal.SIGINT)

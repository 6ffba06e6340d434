"""How the long-lived parts of a process start together and stop in order, so that no work is lost.

The composition root calls `run` once, with the parts in the order in which they depend on each other:

    await run(recorder, *informers, *controllers, stop=stop_on_signals())

Asked to stop, the parts stop one after the other from the last to the first: controllers hand out no new work
and finish what is in process, then informers end, then the recorder flushes. What does not end in time is
cancelled. A part that fails has the others cancelled in that order, and its error surfaces. Leadership is
a part that contains others (lease.py), so the lease is given back when all that it protects has ended.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

Task = asyncio.Task[None]

log = logging.getLogger(__name__)

_LEAST_PATIENCE = 1.0  # a part that stops late in the order gets this, however long the others took


class Service(Protocol):
    async def run(self) -> None:
        """Work until `stop`; an error ends the process."""

    def stop(self) -> None:
        """Have `run` finish what it has in hand, take nothing new, and return."""


async def run(*services: Service, stop: asyncio.Event, patience: float = 20.0) -> None:
    """Run all until `stop` is set or one fails; all have ended when this returns or raises."""
    tasks = [asyncio.create_task(each.run(), name=_name(each)) for each in services]
    asked = asyncio.create_task(stop.wait())
    errors: list[Exception] = []
    try:
        await asyncio.wait([asked, *tasks], return_when=asyncio.FIRST_COMPLETED)
        errors = _ended_early(tasks, asked)
        if not errors:
            await _stop_in_order(services, tasks, patience)
    finally:
        asked.cancel()
        await _cancel_in_order(tasks)
    _surface(errors + [error for error in _errors(tasks) if error not in errors])


async def until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run the work to its end, or cancel it when `stop` is set."""
    working = asyncio.create_task(work)
    asked = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        await _cancel_in_order([working])
    if not working.cancelled():
        working.result()


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and Ctrl-C set; a second one ends the process as if nobody listened."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def asked() -> None:
        stop.set()
        for each in signals:
            loop.remove_signal_handler(each)

    for each in signals:
        loop.add_signal_handler(each, asked)
    return stop


async def _stop_in_order(services: Sequence[Service], tasks: Sequence[Task], patience: float) -> None:
    clock = asyncio.get_running_loop().time
    deadline = clock() + patience
    for service, task in reversed(list(zip(services, tasks, strict=True))):
        service.stop()
        _, late = await asyncio.wait([task], timeout=max(deadline - clock(), _LEAST_PATIENCE))
        if late:
            log.warning("%s did not stop in time and is cancelled", task.get_name())
            await _cancel_in_order([task])


async def _cancel_in_order(tasks: Sequence[Task]) -> None:
    for task in reversed(tasks):
        task.cancel()
        await asyncio.wait([task])


def _ended_early(tasks: Sequence[Task], asked: asyncio.Task[Any]) -> list[Exception]:
    done = [task for task in tasks if task.done()]
    if asked.done():
        return _errors(done)
    return _errors(done) or [RuntimeError(f"{task.get_name()} ended unasked") for task in done]


def _errors(tasks: Sequence[Task]) -> list[Exception]:
    found = [task.exception() for task in tasks if not task.cancelled()]
    return [error for error in found if isinstance(error, Exception)]


def _surface(errors: list[Exception]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("services failed", errors)


def _name(service: Service) -> str:
    return getattr(service, "name", "") or type(service).__name__

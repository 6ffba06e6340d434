"""How a process of ours runs that lives long and holds much: the API server, DNC-RC, a node's agent.

What Python's own loop and its own thresholds cost instead is in docs/benchmarks.md ("The whole as it grows").
"""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

import uvloop

_THRESHOLDS = (50_000, 50, 100)  # a look at the young per 50,000 objects more than before


def run(main: Coroutine[Any, Any, None]) -> None:
    """As `asyncio.run`, on uvloop: thousands of watches over TLS are its strength."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def seldom_collected() -> None:
    """Call once all is built that stays.

    Reference counts free nearly everything here. What the collector finds beside that is little, and a full
    look walks all that is held, while pods wait: it should not look at what stays, nor often at the rest.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)

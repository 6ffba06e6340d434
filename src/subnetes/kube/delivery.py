"""The mailbox between an informer and one handler: a slow handler delays nobody and cannot fill the memory.

Changes of a key that the handler has not come to yet are merged into one, from the state that it saw last to
the newest. It gets fewer changes, never one out of order; of what came and went meanwhile it does not hear.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from subnetes.kube.key import Key

T = TypeVar("T")
Handler = Callable[[T | None, T | None], Awaitable[None] | None]


class Delivery(Generic[T]):
    def __init__(self, handler: Handler[T]) -> None:
        self._handler = handler
        self._pending: OrderedDict[Key, tuple[T | None, T | None]] = OrderedDict()
        self._news = asyncio.Event()

    def offer(self, key: Key, old: T | None, new: T | None) -> None:
        seen = self._pending[key][0] if key in self._pending else old
        if seen is None and new is None:
            self._pending.pop(key, None)
            return
        self._pending[key] = (seen, new)
        self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._pending:
                _, (old, new) = self._pending.popitem(last=False)
                answer = self._handler(old, new)
                if answer is not None:
                    await answer

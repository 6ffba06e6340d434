"""What an informer follows: a collection that can be listed and watched.

`Source` is the port, two calls wide, so that a test can be the server. `Selection` is it on the API server.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.codec import Listing, WatchEvent

T = TypeVar("T")


class Source(Protocol[T]):
    async def list(self) -> Listing[T]:
        """All of it, as the quorum knows it; raises ApiError."""

    def watch(self, resource_version: str) -> AsyncGenerator[WatchEvent[T], None]:
        """What happened after that version, for as long as the server likes; raises ApiError."""


@dataclass(frozen=True)
class Selection(Generic[T]):
    """All objects of a kind, or what a namespace and selectors leave; a `Resource` gives dictionaries."""

    client: Client
    kind: type[T] | Resource
    namespace: str | None = None
    label_selector: str = ""
    field_selector: str = ""

    async def list(self) -> Listing[T]:
        kind: Any = self.kind  # the client's overloads tell types from Resources; T cannot choose
        found: Listing[T] = await self.client.list(
            kind, self.namespace, label_selector=self.label_selector, field_selector=self.field_selector
        )
        return found

    async def watch(self, resource_version: str) -> AsyncGenerator[WatchEvent[T], None]:
        kind: Any = self.kind
        events = self.client.watch(
            kind,
            self.namespace,
            resource_version=resource_version,
            label_selector=self.label_selector,
            field_selector=self.field_selector,
        )
        async with aclosing(events):
            async for event in events:
                yield event

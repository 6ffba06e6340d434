"""Leases as an API server keeps them, in memory, for elections with a clock that jumps.

Each candidate has its own `Line` to the server, which can be cut: what is sent then hangs until it is mended.
"""

from __future__ import annotations

import asyncio
import copy

import msgspec

from subnetes.api.core import Lease
from subnetes.kube.errors import AlreadyExists, Conflict, NotFound


class LeaseServer:
    """One lease, with optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._version = 0

    def get(self) -> Lease:
        if self.lease is None:
            raise NotFound("no such lease")
        return copy.deepcopy(self.lease)

    def create(self, lease: Lease) -> Lease:
        if self.lease is not None:
            raise AlreadyExists("it exists")
        return self._store(lease)

    def update(self, lease: Lease) -> Lease:
        if self.get().metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("it changed")
        return self._store(lease)

    def _store(self, lease: Lease) -> Lease:
        self._version += 1
        metadata = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        self.lease = msgspec.structs.replace(lease, metadata=metadata)
        return self.get()


class Line:
    """A candidate's way to the server; `Leases` for an Elector."""

    def __init__(self, server: LeaseServer) -> None:
        self._server = server
        self._open = asyncio.Event()
        self.mend()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def get(self, kind: type[Lease], name: str, namespace: str | None = None) -> Lease:
        await self._travel()
        return self._server.get()

    async def create(self, obj: Lease) -> Lease:
        await self._travel()
        return self._server.create(obj)

    async def update(self, obj: Lease) -> Lease:
        await self._travel()
        answer = self._server.update(obj)
        await self._travel()
        return answer

    async def _travel(self) -> None:
        await asyncio.sleep(0.01)
        await self._open.wait()

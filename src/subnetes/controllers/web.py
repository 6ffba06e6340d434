"""What operators ask of the controllers over HTTP, on loopback: health, readiness, metrics, DNC's record.

/healthz      the process runs
/readyz       the same; a replica that does not lead is ready to
/metrics      for Prometheus
/debug/ncs    the network containers on record in DNC, while this replica leads (503 otherwise)
"""

import asyncio
from typing import Protocol

import msgspec
from aiohttp import web
from prometheus_client import generate_latest

from subnetes.dnc.allocator import Allocator
from subnetes.kube.metrics import Metrics


class Leader(Protocol):
    """What is asked of DNC-RC."""

    cluster: str
    allocator: Allocator | None


class Listener:
    """A `Service`."""

    name = "controller-web"

    def __init__(self, address: str, leader: Leader, metrics: Metrics) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdigit():
            raise ValueError(f"{address} is no address to listen on: give HOST:PORT")
        self._host, self._port = host.strip("[]") or "127.0.0.1", int(port)
        self._leader = leader
        self._metrics = metrics
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._ok),
                web.get("/readyz", self._ok),
                web.get("/metrics", self._metrics_text),
                web.get("/debug/ncs", self._ncs),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _ok(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _metrics_text(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics.registry), content_type="text/plain")

    async def _ncs(self, _: web.Request) -> web.Response:
        allocator = self._leader.allocator
        if allocator is None:
            raise web.HTTPServiceUnavailable(text="this replica does not lead\n")
        found = await allocator.ncs(self._leader.cluster)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

"""What operators and the kubelet ask of the webhook over plain HTTP: health, readiness, metrics.

/healthz   the process runs
/readyz    reviews may be sent here: it has a certificate, listens, and was not asked to stop
/metrics   for Prometheus
"""

import asyncio
from collections.abc import Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest


class Page:
    """A `Service`."""

    name = "webhook-page"

    def __init__(self, host: str, port: int, ready: Callable[[], bool], registry: CollectorRegistry) -> None:
        self._host, self._port = host, port
        self._ready = ready
        self._registry = registry
        self._stop = asyncio.Event()
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        self._stop.set()

    async def run(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._health),
                web.get("/livez", self._health),
                web.get("/readyz", self._readiness),
                web.get("/metrics", self._metrics),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
            shown = f"[{self._host}]" if ":" in self._host else self._host
            self.url.set_result(f"http://{shown}:{runner.addresses[0][1]}")
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readiness(self, _: web.Request) -> web.Response:
        if not self._ready():
            return web.Response(status=503, text="not ready: no certificate yet, or asked to stop\n")
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), content_type="text/plain")

"""The embedded API server: builds its parts, listens, and takes them down again. `subnetes up` runs it.

async with Server(Config(data=Path("data"))) as server:
    print(server.url, server.token, server.ca_file, server.kubeconfig)
"""

import asyncio
import csv
import secrets
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from subnetes.api.resource import Resource
from subnetes.apiserver import admission
from subnetes.apiserver.builtins import CRDS, DEFINITIONS, FILED, INITIAL_NAMESPACES, NAMESPACE
from subnetes.apiserver.collector import Collector
from subnetes.apiserver.conversion import TIMEOUT_SECONDS, Converter
from subnetes.apiserver.handlers.app import App
from subnetes.apiserver.handlers.watches import Watches
from subnetes.apiserver.hub import Hub
from subnetes.apiserver.metadata import Object
from subnetes.apiserver.objects import Objects
from subnetes.apiserver.patch import merge_patch
from subnetes.apiserver.registry import Registry
from subnetes.apiserver.store import Change, Store
from subnetes.apiserver.tls import server_context, write_private

LEFT_OUT = (
    "server-side apply, and strategic merge patches of lists",
    "admission webhooks and API aggregation",
    "RBAC: whoever has a token may do everything",
    "schemas of core kinds: what is written to a Pod or a Node is not validated",
    "protobuf, CBOR and YAML: bodies and answers are JSON",
    "deletion in the foreground and orphaning; expiry of Events",
    "warnings, and structural checks of CRDs",
)
COMPACTION_STEP = 1000  # revisions forgotten at a time, so that requests do not wait long


@dataclass(frozen=True, slots=True)
class Config:
    data: Path | None = None  # None: in memory, forgotten at the end
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one
    kubeconfig: Path | None = None  # None: in the data folder
    crds: list[dict[str, Any]] = field(default_factory=list)  # created or updated at start
    history_seconds: float = 300  # how long the past can be listed and watches resumed
    bookmark_seconds: float = 100  # often enough for that: a quiet watch stays resumable, and costs little


class Server:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = AsyncExitStack()
        self.url = ""
        self.token = ""
        self.ca_file = Path()
        self.kubeconfig = Path()

    async def __aenter__(self) -> "Server":
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self, stack: AsyncExitStack) -> None:
        folder = self._config.data or Path(tempfile.mkdtemp(prefix="subnetes-"))
        if self._config.data is None:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        store = Store(self._config.data, FILED)
        stack.callback(store.close)
        self.token, tokens = _tokens(folder)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        objects, hub, collector = _parts(store, Converter(session))
        await _prepare(objects, self._config.crds)
        collector.start()
        for work in (collector.run(), _compact(store, self._config.history_seconds)):
            stack.push_async_callback(_cancelled, asyncio.create_task(work))
        watches = Watches(objects, hub, self._config.bookmark_seconds)
        await self._listen(stack, folder, App(objects, watches, tokens))
        stack.callback(hub.close)
        self.ca_file = folder / "ca.crt"
        self.kubeconfig = self._config.kubeconfig or folder / "kubeconfig"
        write_private(self.kubeconfig, _kubeconfig(self.url, self.ca_file, self.token))

    async def _listen(self, stack: AsyncExitStack, folder: Path, app: App) -> None:
        host = self._config.host
        reachable = {"127.0.0.1", "::1", "localhost", host} - {"0.0.0.0", "::"}
        context = server_context(folder, sorted(reachable))
        server = web.Server(app.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=5)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, self._config.port, ssl_context=context, backlog=1024).start()
        port = runner.addresses[0][1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"https://{shown}:{port}"


def _parts(store: Store, converter: Converter) -> tuple[Objects, Hub, Collector]:
    registry, hub = Registry(), Hub()
    for row in store.scan(CRDS).rows:
        registry.install(orjson.loads(row.value))
    objects = Objects(store, registry, converter)
    collector = Collector(objects)

    def redefine(change: Change, new: Object, _old: Object | None) -> None:
        if change.resource == CRDS:
            if change.deleted:
                registry.remove(new)
            if change.deleted or registry.install(new):
                hub.close(new["metadata"]["name"])  # what its watchers were told may look different now

    objects.listeners.extend([redefine, hub.publish, collector.changed])
    return objects, hub, collector


async def _prepare(objects: Objects, crds: list[dict[str, Any]]) -> None:
    """What every cluster has, and what this one is asked to have."""
    for name in INITIAL_NAMESPACES:
        await _ensure(
            objects, NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    for crd in crds:
        await _ensure(objects, DEFINITIONS.resource, crd)


async def _ensure(objects: Objects, resource: Resource, body: Object) -> None:
    endpoint = objects.registry.find(resource.group, resource.version, resource.plural)
    assert endpoint is not None
    wanted = admission.drafted(endpoint, orjson.loads(orjson.dumps(body)))
    name = wanted["metadata"]["name"]
    if objects.store.get(endpoint.served.key, name) is None:
        await objects.create(endpoint, "", wanted)
    else:
        await objects.update(endpoint, "", name, lambda old: _declared(wanted, old))


def _declared(wanted: Object, old: Object) -> Object:
    """The old object with what is declared of it; labels and annotations of others stay."""
    return old | wanted | {"metadata": merge_patch(old["metadata"], wanted["metadata"])}


async def _compact(store: Store, seconds: float) -> None:
    """Forget what happened longer ago than this, a step at a time."""
    while True:
        horizon = store.revision
        await asyncio.sleep(seconds)
        while store.compacted < horizon:
            store.compact(min(horizon, store.compacted + COMPACTION_STEP))
            await asyncio.sleep(0)


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _tokens(folder: Path) -> tuple[str, dict[str, str]]:
    """The admin's token, and all tokens with their users: `tokens.csv`, in kube-apiserver's format."""
    path = folder / "tokens.csv"
    if not path.exists():
        write_private(path, f"{secrets.token_urlsafe(32)},admin,admin\n".encode())
    rows = [row for row in csv.reader(path.read_text().splitlines()) if len(row) > 1]
    users = {row[0]: row[1] for row in rows}
    return next(token for token, user in users.items() if user == "admin"), users


def _kubeconfig(url: str, ca_file: Path, token: str) -> bytes:
    name = "subnetes"
    cluster = {"server": url, "certificate-authority": str(ca_file.resolve())}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        "current-context": name,
    }
    return orjson.dumps(config, option=orjson.OPT_INDENT_2)  # JSON is YAML

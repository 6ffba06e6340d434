"""One informer for each ClusterSubnet that the node draws from: an agent sees no others.

Which they are changes with the node's network containers, so informers come and go while the agent runs.
"""

import asyncio
from collections.abc import Callable, Iterable

from subnetes.api.clustersubnet import ClusterSubnet, Scaler
from subnetes.api.names import NAMESPACE
from subnetes.kube.client import Client
from subnetes.kube.informer import Informer
from subnetes.kube.key import Key
from subnetes.kube.metrics import Metrics
from subnetes.kube.selection import Selection

Told = Callable[[str, ClusterSubnet | None], None]


class SubnetWatch:
    """A `Service`. `told(name, subnet)` is called at first and whenever what rules the node changed.

    None: there is no such subnet.
    """

    def __init__(self, client: Client, told: Told, metrics: Metrics) -> None:
        self._client = client
        self._told = told
        self._metrics = metrics
        self._wanted: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._stopping = False

    def want(self, names: Iterable[str]) -> None:
        """Watch these from now on, and no others."""
        wanted = frozenset(names)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def stop(self) -> None:
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping:
                self._changed.clear()
                for name in running.keys() - self._wanted:
                    running.pop(name).cancel()
                for name in self._wanted - running.keys():
                    running[name] = tasks.create_task(self._follow(name), name=f"ClusterSubnet {name}")
                await self._changed.wait()
            for task in running.values():
                task.cancel()

    async def _follow(self, name: str) -> None:
        selection = Selection(self._client, ClusterSubnet, NAMESPACE, field_selector=f"metadata.name={name}")
        informer = Informer(f"clustersubnet-{name}", selection, metrics=self._metrics)
        informer.on_change(lambda old, new: self._changed_to(name, old, new))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            await informer.synced()
            self._told(name, informer.store.get(Key(NAMESPACE, name)))

    def _changed_to(self, name: str, old: ClusterSubnet | None, new: ClusterSubnet | None) -> None:
        if old is None or new is None or _ruling(old) != _ruling(new):
            self._told(name, new)


def _ruling(subnet: ClusterSubnet) -> tuple[bool | None, Scaler | None]:
    """What an agent follows. Counts change every half minute, and every agent of the cluster hears of it."""
    return (subnet.status.exhausted, subnet.status.scaler) if subnet.status else (None, None)

"""An agent on the embedded API server, and a grantor that stands where DNC-RC would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Pod
from subnetes.api.crd import crds
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.apiserver.server import Config, Server
from subnetes.cns.agent import Agent, AgentConfig
from subnetes.ipam.pool import Holder
from subnetes.kube.client import Client
from subnetes.kube.patches import MergePatch
from subnetes.kube.sources import from_kubeconfig

NODE = "node-1"
NC = "11111111-1111-1111-1111-111111111111"
SUBNET = "blue"


class Grantor:
    """Meets the NNC's request from a range of its own, by hand: `await grantor.meet()`."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.held: dict[str, str] = {}
        self.version = 1
        self.serial = 0
        self.room = 250

    async def nnc(self) -> NodeNetworkConfig:
        return await self.client.get(NodeNetworkConfig, NODE, "kube-system")

    async def create_nnc(self) -> None:
        nnc = NodeNetworkConfig()
        nnc.metadata.name, nnc.metadata.namespace = NODE, "kube-system"
        await self.client.create(nnc)
        await self.write()

    async def meet(self) -> NodeNetworkConfig:
        """Free what is released, grant what is missing, write the status: one look at the request."""
        nnc = await self.nnc()
        spec = nnc.spec
        before = dict(self.held)
        for ip_id in (spec.released_ips if spec else None) or ():
            self.held.pop(ip_id, None)
        wanted = ((spec.secondary_ips if spec else None) or {}).get(NC, 0)
        while len(self.held) < min(wanted, self.room):
            self.serial += 1
            self.held[f"ip-{self.serial}"] = f"10.0.{self.serial // 200}.{self.serial % 200 + 10}"
        if self.held != before:
            self.version += 1
            return await self.write()
        return nnc

    async def write(self) -> NodeNetworkConfig:
        ips = [{"id": ip_id, "address": address} for ip_id, address in self.held.items()]
        status = {
            "networkContainers": [
                {
                    "id": NC,
                    "assignmentMode": "dynamic",
                    "primaryIP": "10.0.0.2",
                    "defaultGateway": "10.0.0.1",
                    "subnetAddressSpace": "10.0.0.0/16",
                    "subnetName": SUBNET,
                    "version": self.version,
                    "secondaryIPs": ips,
                    "secondaryIPCount": len(ips),
                    "type": "vnet",
                }
            ],
            "status": "Updated",
        }
        return await self.client.patch(
            NodeNetworkConfig, NODE, MergePatch({"status": status}), "kube-system", subresource="status"
        )

    async def meet_until(self, count: int, patience: float = 20.0) -> NodeNetworkConfig:
        """Meet requests until the node holds that many."""
        async with asyncio.timeout(patience):
            while True:
                nnc = await self.meet()
                if len(self.held) == count:
                    return nnc
                await asyncio.sleep(0.02)


@asynccontextmanager
async def api(folder: Path) -> AsyncIterator[Client]:
    kubeconfig = folder / "kubeconfig"
    async with (
        Server(Config(crds=crds(), kubeconfig=kubeconfig)) as server,
        Client(from_kubeconfig(server.kubeconfig)) as client,
    ):
        yield client


@asynccontextmanager
async def running(client: Client, folder: Path, **changes: Any) -> AsyncIterator[Agent]:
    """An agent until the block ends, however it ends."""
    config = AgentConfig(node=NODE, socket=folder / "cns.sock", state=folder / "state", wait=5.0)
    agent = Agent(replace(config, **changes), client)
    task = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            await agent.serving()
        yield agent
    finally:
        agent.stop()
        await task


async def make_pods(client: Client, *names: str, node: str = NODE) -> None:
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            }
            tasks.create_task(client.create(pod, resource=Pod.resource))


async def make_subnet(client: Client, **status: Any) -> None:
    subnet = {
        "apiVersion": "acn.azure.com/v1alpha1",
        "kind": "ClusterSubnet",
        "metadata": {"name": SUBNET, "namespace": "kube-system"},
        "spec": {"addressSpace": ["10.0.0.0/16"]},
    }
    await client.create(subnet, resource=ClusterSubnet.resource)
    if status:
        await set_subnet(client, **status)


async def set_subnet(client: Client, **status: Any) -> None:
    await client.patch(
        ClusterSubnet, SUBNET, MergePatch({"status": status}), "kube-system", subresource="status"
    )


def sandbox(name: str, container: str = "", uid: str = "") -> Holder:
    return Holder(
        container_id=container or f"sandbox-of-{name}",
        ifname="eth0",
        network="pods",
        pod_namespace="default",
        pod_name=name,
        pod_uid=uid,
    )

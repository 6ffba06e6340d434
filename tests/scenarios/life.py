"""What goes on while somebody makes a mistake, and where that somebody looks for the answer."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from subnetes.api.core import Event
from subnetes.api.names import NAMESPACE, SCALER
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.ipam.pool import Holder
from subnetes.kube.key import Key
from subnetes.kube.patches import MergePatch
from tests.scenarios.world import PATIENCE, World


@dataclass
class Life:
    """What went well before the mistake: node a draws from subnet pods, and pods run on it."""

    world: World
    pods: list[Key]
    addresses: list[str]

    def kept(self) -> None:
        """Every pod has its IP: by the API's word, by DNC-RC's grant and by the agent's pool."""
        assert [self.world.address(pod) for pod in self.pods] == self.addresses
        assert set(self.addresses) <= set(self.world.granted("a"))
        assert set(self.addresses) <= {ip for ip, holder in held(self.world).items() if holder}

    async def goes_on(self, more: int = 2) -> None:
        """And new ones start."""
        self.kept()
        pods = await self.world.pods("a", more)
        self.addresses += await self.world.running(pods)
        self.pods += pods
        assert len(set(self.addresses)) == len(self.addresses)
        await self.world.until(lambda: set(self.addresses) <= set(self.world.granted("a")))
        self.kept()


def held(world: World) -> dict[str, Holder | None]:
    """Address → who has it, as node a's agent knows."""
    return {ip.address: ip.holder for ip in world.nodes["a"].agent.ipam.pool}


async def told(world: World, reason: str, kind: str, name: str) -> str:
    """What a Warning about this object says, once it is there."""

    def fits(event: Event) -> bool:
        about = event.involved_object
        return (event.type, about.kind, about.name) == ("Warning", kind, name)

    async with asyncio.timeout(PATIENCE):
        while True:
            for event in filter(fits, await world.events(reason, NAMESPACE)):
                return event.message
            await asyncio.sleep(0.05)


def message(world: World, subnet: str, condition: str) -> str:
    (found,) = [each for each in world.subnet_status(subnet).conditions or [] if each.type == condition]
    return found.message


def scaler(world: World) -> tuple[int, float]:
    stated = world.subnet_status("pods").scaler
    assert stated is not None
    return stated.batch, stated.buffer


async def write_request(world: World, node: str, **spec: Any) -> None:
    """What only the node's agent should write."""
    await world.client.patch(NodeNetworkConfig, node, MergePatch({"spec": spec}), NAMESPACE)


def spec_of(world: World, node: str) -> tuple[dict[str, int], list[str]]:
    """What the node asks for, and what it lets go."""
    nnc = world.nnc(node)
    assert nnc is not None
    assert nnc.spec is not None
    return nnc.spec.secondary_ips or {}, nnc.spec.released_ips or []


def changes(world: World) -> list[str]:
    """Which parts of node a's NNC were written: what it asks for, and what it is granted."""
    return [part for part in world.writes.parts("a") if part != "metadata"]


def maximum(world: World, node: str) -> int:
    """As DNC-RC understood the Node's annotation."""
    nnc = world.nnc(node)
    assert nnc is not None
    return int(json.loads((nnc.metadata.annotations or {})[SCALER])["maxIPCount"])

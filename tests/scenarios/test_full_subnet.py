"""The story of a node that joins a full subnet: it is ready, waits quietly, and heals when others let go.

The old rule asked for a whole batch when the node was created, all or nothing. The same story under that rule
ends in its deadlock, which proves that the story can fail.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest

from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import SubnetFull
from subnetes.dnc.types import NC, SubnetKey
from subnetes.kube.key import Key
from tests.harness.requests import Request
from tests.scenarios.parts import new_allocator
from tests.scenarios.world import World

pytestmark = pytest.mark.slow

BATCH = 16
SPACE = "10.1.0.0/27"  # 29 addresses: 32 less the network's, the broadcast's and the gateway's
WINDOW = 2.0  # seconds in which requests are counted


async def fill(world: World) -> list[Key]:
    """A node whose pods take all addresses but two: one for the newcomer's primary, none for its pods."""
    await world.subnet("pods", SPACE)
    await world.node("old")
    await world.joined()
    pods = await world.pods("old", 27)
    await world.running(pods)
    await world.until(lambda: bool(world.subnet_status("pods").exhausted))
    await world.until(lambda: len(world.granted("old")) == 27)  # the idle ones flowed back
    return pods


async def test_a_node_that_joins_a_full_subnet_is_ready_and_gets_ips_when_others_let_go(
    world: World,
) -> None:
    old = await fill(world)
    await world.node("new")
    await world.joined("new")
    (nc,) = world.ncs("new")
    assert nc.primary_ip
    assert not nc.secondary_ips
    waiting = await world.pods("new", 5)
    await world.until(lambda: world.ncs("new")[0].status == "NCUpdateSubnetFullError")
    await world.node_is_ready("new")
    assert not any(map(world.address, waiting))
    await world.delete_pods(old[:5])
    await world.running(waiting)
    assert await world.events("SubnetFull")


async def test_a_waiting_node_costs_the_api_server_next_to_nothing(world: World) -> None:
    await fill(world)
    await world.node("new", wait=60.0)
    await world.joined("new")
    await world.pods("new", 5)
    await world.until(lambda: world.ncs("new")[0].status == "NCUpdateSubnetFullError")
    before = await world.requests()
    world.writes.forget()
    await asyncio.sleep(WINDOW)
    asked = await world.requests() - before
    assert world.writes.all == []
    assert of(asked, "nodenetworkconfigs", "clustersubnets", "pods", "nodes") <= 3, asked
    assert of(asked, "events") <= 10, asked


def of(asked: Counter[Request], *resources: str) -> int:
    """How often these were asked for, watches apart."""
    return sum(
        count for (verb, resource, *_), count in asked.items() if resource in resources and verb != "WATCH"
    )


class AsksABatchAtCreation:
    """The old rule: an NC is made with a whole batch of IPs, or not at all."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def __getattr__(self, name: str) -> object:
        return getattr(self._allocator, name)

    async def ensure_nc(self, cluster: str, node: str, subnet: SubnetKey) -> NC:
        mine = await self._allocator.ncs(cluster, node)
        free = (await self._allocator.utilization(subnet)).free
        if not mine and free < 1 + BATCH:
            raise SubnetFull(f"{subnet}: {1 + BATCH} addresses are asked for and {free} are free")
        return await self._allocator.ensure_nc(cluster, node, subnet)


async def old_rule() -> Any:
    return AsksABatchAtCreation(await new_allocator())


async def test_under_the_old_rule_the_same_node_is_stuck(bare_world: World) -> None:
    world = bare_world
    await world.start_controller(allocator=old_rule)
    old = await fill(world)
    await world.node("new")
    await world.until(lambda: world.nnc("new") is not None)
    waiting = await world.pods("new", 5)
    await world.delete_pods(old[:10])
    await world.gone(old[:10])
    await world.until(lambda: len(world.granted("old")) == 17)  # ten addresses are free, and five are needed
    with pytest.raises(TimeoutError):
        await world.running(waiting, patience=WINDOW)
    assert world.ncs("new") == []
    assert not world.nodes["new"].node.kubelet.ready.is_set()

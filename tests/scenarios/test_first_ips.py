"""A node's first IPs cost one request and one grant."""

import pytest

from tests.harness.requests import writes
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


async def test_an_idle_node_has_its_first_ips_after_two_writes(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    await world.subnet_ready("pods")
    await world.node("a")
    await world.until(lambda: len(world.granted("a")) == 15)
    await world.quiet()
    assert world.writes.parts("a") == ["created", "status", "spec", "status"]


async def test_pods_that_wait_for_the_node_are_part_of_its_first_request(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    await world.subnet_ready("pods")
    pods = await world.pods("a", 20)
    before = await world.requests()
    await world.node("a")
    await world.running(pods)
    await world.quiet()
    assert world.writes.parts("a") == ["created", "status", "spec", "status"]
    asked = await world.requests() - before
    assert writes(asked, "nodenetworkconfigs") == 4, "creation, empty network container, request, grant"

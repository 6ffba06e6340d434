"""Idle IPs come back: a /24 shared by twelve idle nodes, then one of them needs most of it."""

import pytest

from tests.scenarios.world import World

pytestmark = pytest.mark.slow

NODES = [f"n{number:02}" for number in range(12)]


async def test_one_node_gets_what_eleven_keep_idle_and_at_last_every_address_is_a_pods(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/24")
    for name in NODES:
        await world.node(name)
    await world.until(lambda: all(len(world.granted(name)) == 15 for name in NODES))
    flips = world.follow_exhaustion("pods")

    await world.running(await world.pods(NODES[0], 150))
    assert flips.seen == [True], "it became exhausted once, and stayed so while the need lasts"

    more = [pod for name in NODES[1:] for pod in await world.pods(name, 8)]  # 88
    last = await world.pods(NODES[0], 3)
    await world.running(more + last)
    held = [address for name in NODES for address in world.granted(name)]
    assert len(held) == len(set(held)) == 241, "every address that is not a primary"
    assert flips.seen == [True]

"""A Node object goes while its machine lives, and comes back; or it does not, and nothing of it is lost."""

import pytest

from tests.scenarios.test_takeover import ids
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


async def test_a_node_that_returns_within_its_grace_has_all_that_it_had(bare_world: World) -> None:
    world = bare_world
    await world.start_controller(node_grace=30.0)
    await world.subnet("pods", "10.1.0.0/27", scaler={"batch": 1, "buffer": 1})  # nobody has idle IPs
    await world.node("a")
    await world.joined()
    pods = await world.pods("a", 15)
    mine = await world.running(pods)
    await world.quiet()
    (before,), granted = world.ncs("a"), ids(world, "a")

    await world.delete_node_object("a")
    await world.node("b")
    others = await world.pods("b", 15)  # more than is left
    await world.until(lambda: any(nc.status == "NCUpdateSubnetFullError" for nc in world.ncs("b")))
    taken = {*world.granted("b"), *(nc.primary_ip for nc in world.ncs("b"))}
    assert not taken & {*granted.values(), before.primary_ip}

    await world.nodes["a"].node.register()
    await world.until(lambda: [nc.id for nc in world.ncs("a")] == [before.id])
    await world.delete_pods(others)
    await world.gone(others)
    assert [world.address(pod) for pod in pods] == mine, "the machine and its pods never noticed"
    await world.until(lambda: set(mine) <= set(world.granted("a")))  # its NNC is made anew meanwhile
    kept = ids(world, "a")
    assert all(granted.get(each, address) == address for each, address in kept.items())
    assert {granted_id for granted_id, address in granted.items() if address in mine} <= set(kept)


async def test_a_node_that_is_gone_for_good_gives_everything_back_after_its_grace(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/27")
    await world.node("a")
    await world.joined()
    await world.running(await world.pods("a", 20))
    await world.node_dies("a")
    await world.until(lambda: world.nnc("a") is None)
    await world.node("b")
    await world.running(await world.pods("b", 27))


async def test_it_works_the_same_if_nobody_was_there_when_the_node_went(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/27")
    await world.node("a")
    await world.joined()
    await world.running(await world.pods("a", 20))
    await world.crash_controller()
    await world.node_dies("a")
    await world.start_controller()
    await world.until(lambda: world.nnc("a") is None)
    await world.until(lambda: (world.subnet_status("pods").reserved or 0) == 0)

"""A hundred and ten pods at once: one request. And a rolling update of them, old and new side by side."""

from typing import Any

import pytest

from tests.scenarios.world import World

pytestmark = pytest.mark.slow

# A busy test machine takes long to create 110 pods; that is one burst all the same.
PATIENT: dict[str, Any] = {"quiet": 0.5, "at_most": 5.0, "wait": 20.0, "shrink_after": 60.0}


async def test_110_pods_at_once_are_one_request_and_one_grant(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/23")
    await world.node("a", **PATIENT)
    await world.until(lambda: len(world.granted("a")) == 15)
    world.writes.forget()
    pods = [pod for _ in range(11) for pod in await world.pods("a", 10)]
    await world.running(pods)
    await world.quiet()
    assert world.writes.parts("a") == ["spec", "status"]
    assert await world.events("NoIPAvailable") == []


async def test_in_a_rolling_update_no_pod_waits_for_more_than_one_grant(world: World) -> None:
    await world.subnet("pods", "10.1.0.0/23")
    await world.node("a", **PATIENT)
    await world.joined()
    old = await world.pods("a", 110)
    await world.running(old)
    await world.quiet()
    world.writes.forget()
    grants, failed = [], world.failed_adds("a")
    while old:
        wave, old = old[:28], old[28:]
        new = await world.pods("a", len(wave))
        await world.delete_pods(wave)  # both at once: the new ones are not to wait for the old ones' IPs
        await world.running(new)
        await world.gone(wave)
        grants.append(world.writes.parts("a").count("status"))
        world.writes.forget()
    assert max(grants) <= 1, grants
    assert world.failed_adds("a") == failed

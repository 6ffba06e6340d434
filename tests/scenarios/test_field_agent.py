"""What users of other pod networks suffered, by its row in the list: what one agent must get right."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from subnetes.api.model import to_builtins
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.ipam.pool import State
from subnetes.kube.patches import MergePatch
from subnetes.simulation.plugin import PluginFailed
from tests.scenarios.runtime import Runtime
from tests.scenarios.world import World

pytestmark = pytest.mark.slow


@pytest.fixture
async def runtime(world: World) -> AsyncIterator[Runtime]:
    """A node with a warm pool, whose sandboxes are the test's own."""
    await world.subnet("pods", "10.1.0.0/25")
    living = await world.node("a", kubelet=False)
    await world.until(lambda: len(living.agent.ipam.pool.ids) == 15)
    runtime = Runtime(living)
    yield runtime
    for sandbox in living.node.kubelet.sandboxes.all():
        await runtime.delete(sandbox)
        runtime.vanish(sandbox)


async def test_row_01_a_late_del_of_an_old_sandbox_frees_nothing_of_a_new_one(runtime: Runtime) -> None:
    old = runtime.sandbox()
    await runtime.add(old)
    await runtime.delete(old)
    crowd = [runtime.sandbox(f"pod-{n}", f"uid-{n}") for n in range(15)]
    held = dict(zip([each.id for each in crowd], await asyncio.gather(*map(runtime.add, crowd)), strict=True))
    await runtime.delete(old)
    assert runtime.assigned() == held
    assert [await runtime.add(each) for each in crowd] == list(held.values())


async def test_row_01_add_and_del_of_one_sandbox_at_once_end_in_one_of_both(runtime: Runtime) -> None:
    for number in range(20):
        sandbox = runtime.sandbox(f"pod-{number}", f"uid-{number}")
        done = await asyncio.gather(runtime.add(sandbox), runtime.delete(sandbox), return_exceptions=True)
        left = runtime.assigned()
        assert left in ({}, {sandbox.id: done[0]})
        await runtime.delete(sandbox)
    assert runtime.assigned() == {}
    assert len(runtime.addresses(State.AVAILABLE)) == 15


async def test_row_02_a_pods_new_sandbox_releases_what_the_vanished_one_held(
    world: World, runtime: Runtime
) -> None:
    first = runtime.sandbox()
    await runtime.add(first)
    runtime.vanish(first)
    second = runtime.sandbox()
    address = await runtime.add(second)
    await world.until(lambda: runtime.assigned() == {second.id: address})


async def test_row_03_del_goes_by_the_container_and_never_by_the_pods_name(runtime: Runtime) -> None:
    old, new = runtime.sandbox(uid="uid-1"), runtime.sandbox(uid="uid-2")
    await runtime.add(old)
    address = await runtime.add(new)
    await runtime.delete(old)
    assert runtime.assigned() == {new.id: address}
    stranger = msgspec.structs.replace(old, id="f" * 64)
    await runtime.delete(stranger)
    assert runtime.assigned() == {new.id: address}


async def test_row_05_what_was_let_go_before_a_reboot_is_not_available_after_it(
    world: World, runtime: Runtime
) -> None:
    living = runtime.living
    await world.crash_controller()  # nobody takes back what is let go
    await world.change_subnet_status("pods", exhausted=True)
    await world.until(lambda: len(runtime.addresses(State.PENDING_RELEASE)) == 15)
    await world.until(lambda: world.requested("a") == 0)
    await world.crash_agent("a")
    living.node.config = replace(living.node.config, boot_id="the next")
    await world.restart_agent("a")
    await world.until(lambda: living.agent.ipam.containers != ())
    assert runtime.addresses(State.AVAILABLE) == set()
    assert len(runtime.addresses(State.PENDING_RELEASE)) == 15
    with pytest.raises(PluginFailed):
        await runtime.add(runtime.sandbox())
    await world.start_controller()
    await world.until(lambda: world.subnet_status("pods").exhausted is False)
    await world.until(lambda: len(runtime.addresses(State.AVAILABLE)) == 15)


async def test_row_06_del_succeeds_while_the_agent_is_down_and_is_made_up_for(
    world: World, runtime: Runtime
) -> None:
    crowd = [runtime.sandbox(f"pod-{n}", f"uid-{n}") for n in range(3)]
    for sandbox in crowd:
        await runtime.add(sandbox)
    await world.crash_agent("a")
    assert await asyncio.to_thread(runtime.execute_delete, crowd[0]) == 0
    await world.restart_agent("a")
    await world.until(lambda: runtime.assigned().keys() == {each.id for each in crowd[1:]})


async def test_row_09_a_warm_pool_serves_pods_without_a_word_to_the_api_server(
    world: World, runtime: Runtime
) -> None:
    await world.crash_controller()
    before = await world.requests()
    crowd = [runtime.sandbox(f"pod-{n}", f"uid-{n}") for n in range(7)]  # half the pool: no request is due
    await asyncio.gather(*map(runtime.add, crowd))
    await asyncio.gather(*map(runtime.delete, crowd))
    asked = await world.requests() - before
    assert {resource for (_, resource, *_) in asked} <= {"leases"}, asked
    await world.start_controller()


async def test_row_10_an_absent_pod_frees_nothing_its_sandboxs_namespace_decides(
    world: World, runtime: Runtime
) -> None:
    lives, dies = runtime.sandbox("lives", "uid-1"), runtime.sandbox("dies", "uid-2")
    address = await runtime.add(lives)
    await runtime.add(dies)
    runtime.vanish(dies)  # no pod of either is in the API
    await world.until(lambda: runtime.assigned() == {lives.id: address})
    await world.sweeps("a", 3)
    assert runtime.assigned() == {lives.id: address}


async def test_row_12_what_was_let_go_is_never_taken_back_however_much_it_is_needed(
    world: World, runtime: Runtime
) -> None:
    await world.crash_controller()
    await world.change_subnet_status("pods", exhausted=True)
    await world.until(lambda: len(runtime.addresses(State.PENDING_RELEASE)) == 15)
    with pytest.raises(PluginFailed, match="pods"):
        await runtime.add(runtime.sandbox())
    assert runtime.assigned() == {}
    let_go = set(runtime.living.agent.ipam.pool.ids)
    await world.start_controller()
    sandbox = runtime.sandbox()
    await runtime.add(sandbox)
    (held,) = runtime.living.agent.ipam.pool.by_key((sandbox.id, "eth0"))
    assert held.id not in let_go, "another grant, another id"


async def test_row_13_views_that_diverge_are_found_mended_and_counted(world: World, runtime: Runtime) -> None:
    sandbox = runtime.sandbox()
    address = await runtime.add(sandbox)
    ipam = runtime.living.agent.ipam
    before = ipam.counts.drift.total()
    await world.crash_controller()
    (nc,) = world.ncs("a")
    kept = [ip for ip in nc.secondary_ips or [] if ip.address != address][:9]
    changed = msgspec.structs.replace(nc, secondary_ips=kept, version=(nc.version or 0) + 1)
    document = {"status": {"networkContainers": [to_builtins(changed)]}}
    await world.client.patch(NodeNetworkConfig, "a", MergePatch(document), NAMESPACE, subresource="status")
    await world.until(lambda: ipam.counts.drift.total() > before)
    assert runtime.assigned() == {sandbox.id: address}, "an IP in use is never dropped"
    await runtime.delete(sandbox)
    await world.until(lambda: {ip.address for ip in ipam.pool} == {ip.address for ip in kept})
    await world.start_controller()
    await world.until(lambda: len(runtime.addresses(State.AVAILABLE)) == 15)


async def test_row_15_after_a_reboot_there_is_no_namespace_and_del_still_releases(runtime: Runtime) -> None:
    sandbox = runtime.sandbox()
    await runtime.add(sandbox)
    runtime.vanish(sandbox)
    await runtime.delete(msgspec.structs.replace(sandbox, netns=""))
    assert runtime.assigned() == {}

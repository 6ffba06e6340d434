"""The story of seed 002 on real kubelets: a full subnet, one node more, and nobody who has to do anything."""

import signal
from collections.abc import Iterator

import pytest

from tests.cluster.subnet import check, held_by, network_containers, status
from tests.cluster.workload import Workload
from tests.harness.cluster import Cluster, Setting
from tests.harness.rest import eventually

CAPACITY = 29  # a /27 without its network, broadcast and gateway
NODES = 3
FILLING = CAPACITY - NODES - 1  # with one address left for the primary of a fourth node


@pytest.fixture(scope="module")
def small(machine_is_fit: None) -> Iterator[Cluster]:
    """Three nodes on a /27; pods that find no IP hear of it soon."""
    flags = ["--shrink-after=1", "--wait=2"]
    setting = Setting(nodes=NODES, address_space="10.251.0.0/27", batch=4, agent_flags=flags)
    with Cluster(setting) as running:
        yield running


def told_why(ready: dict[str, str]) -> bool:
    """NotReady, after whatever a young node lacks beside, because containerd asked our plugin."""
    return ready.get("status") == "False" and "NodeNetworkConfig" in ready.get("message", "")


@pytest.mark.timeout(300)
def test_a_node_joins_a_full_subnet_waits_and_is_served_when_others_let_go(small: Cluster) -> None:
    with Workload(small) as workload:
        workload.deploy("filling", FILLING)
        workload.until_running("filling", FILLING)
        eventually(lambda: status(small).get("exhausted"), lambda said: said is True, patience=60)

        assert small.controller is not None
        small.controller.kill(signal.SIGTERM)  # so that the fourth node cannot have its NC yet
        node = small.add_node()
        eventually(lambda: small.ready_condition(node.name), told_why, patience=60)
        small.start_controller()
        small.until_ready(node.name)
        containers = network_containers(small)[node.name]
        assert [len(each.get("secondaryIPs") or []) for each in containers] == [0]
        assert containers[0]["primaryIP"]

        workload.deploy("late", 3, node=node.name)
        told = eventually(lambda: workload.events("NoIPAvailable"), patience=60)
        assert "subnet pods" in told[0]["message"], "the event names it"
        assert {event["involvedObject"]["kind"] for event in told} == {"Pod"}
        assert small.ready(node.name) == "True", "an empty pool does not make a node NotReady"
        assert all(pod["status"]["phase"] == "Pending" for pod in workload.pods("late"))

        workload.scale("filling", FILLING - 5)
        workload.until_running("late", 3, patience=120)
        assert held_by(small)[node.name] >= 3
        check(small)

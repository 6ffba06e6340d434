"""A Deployment of 100 pods on three real kubelets, through everything that happens to one."""

import ipaddress
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from subnetes.ipam import scaling
from tests.cluster.subnet import check, held_by
from tests.cluster.workload import Workload, addresses
from tests.harness.cluster import Cluster
from tests.harness.rest import eventually

PODS = 100
SPACE = ipaddress.ip_network("10.251.0.0/16")
IDLE = scaling.target(scaling.DEFAULT, 0)


@pytest.mark.timeout(600)
def test_100_pods_are_made_rolled_scaled_away_and_back_while_agents_are_killed(workload: Workload) -> None:
    cluster = workload.cluster
    workload.deploy("web", PODS)
    sound(workload.until_running("web", PODS))

    mark = workload.roll("web")
    kill_agents_while(cluster, lambda: rolled(workload, mark), steps=(10, 35, 60))
    sound(workload.until_running("web", PODS))

    workload.scale("web", 0)  # DELs arrive while no agent is there to hear them
    for node in cluster.nodes:
        cluster.kill_agent(node)
    eventually(lambda: len(workload.pods()), lambda left: left < PODS // 2, every=0.25)
    for node in cluster.nodes:
        cluster.start_agent(node)
    workload.until_running("web", 0)
    cluster.until_ready()

    workload.scale("web", PODS)
    sound(workload.until_running("web", PODS))
    check(cluster)

    workload.scale("web", 0)
    workload.until_running("web", 0)
    idle = dict.fromkeys(cluster.nodes, IDLE)
    eventually(lambda: held_by(cluster), lambda held: held == idle, 60, every=0.25)
    check(cluster)  # which asks DNC too: what the nodes let go is free there


def sound(pods: list[dict[str, Any]]) -> None:
    """Every pod on some node, with an IP of the subnet that no other has; every node has its share."""
    found = addresses(pods)
    assert len(set(found)) == PODS
    assert all(ipaddress.ip_address(each) in SPACE for each in found)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node1", "node2", "node3"}


def rolled(workload: Workload, mark: str) -> int:
    """How many pods of the new template run."""
    newest = [pod for pod in workload.pods() if pod["metadata"].get("annotations", {}).get("rolled") == mark]
    return sum(pod["status"].get("phase") == "Running" for pod in newest)


def kill_agents_while(cluster: Cluster, progress: Callable[[], int], steps: tuple[int, ...]) -> None:
    """Each node's agent in its turn, with -9, whenever the roll-out has come one step further."""
    for node, step in zip(cluster.nodes, steps, strict=True):
        eventually(progress, partial(operator.le, step), 120, every=0.25)
        cluster.kill_agent(node)
        cluster.start_agent(node)

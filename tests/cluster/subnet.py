"""What the cluster says of its subnet: who holds how much, and whether all records agree."""

from __future__ import annotations

from typing import Any

from subnetes.cns import journal
from subnetes.ipam.pool import Pool
from tests.harness.cluster import CONTROLLER, SUBNETS, Cluster
from tests.harness.cluster_node import AGENT_PORT, Node

NNCS = "/apis/acn.azure.com/v1beta1/namespaces/kube-system/nodenetworkconfigs"


def network_containers(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    """Node → its NCs."""
    found = {}
    for item in cluster.get(NNCS)["items"]:
        found[item["metadata"]["name"]] = item.get("status", {}).get("networkContainers") or []
    return found


def held_by(cluster: Cluster) -> dict[str, int]:
    """Node → how many IPs it has for its pods."""
    return {
        node: sum(len(each.get("secondaryIPs") or []) for each in containers)
        for node, containers in network_containers(cluster).items()
    }


def status(cluster: Cluster, subnet: str = "pods") -> dict[str, Any]:
    found: dict[str, Any] = cluster.get(f"{SUBNETS}/{subnet}").get("status", {})
    return found


def pool(node: Node) -> Pool:
    """The node's pool, from its journal."""
    return journal.read(node.state / "journal").pool


def check(cluster: Cluster, settle: float = 30) -> None:
    """`subnetes ipam check`: DNC, NNCs, agents, journals and pods agree once what is on its way arrived."""
    nodes = cluster.nodes.values()
    folders = [f"--state-dir={node.name}={node.state}" for node in nodes]
    agents = [f"--agent=http://{node.address}:{AGENT_PORT}" for node in nodes]
    dnc = f"--dnc=http://{CONTROLLER}"
    done = cluster.subnetes("ipam", "check", dnc, f"--wait-settled={settle}", *folders, *agents)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(nodes)} journals" in done.stdout, done.stdout

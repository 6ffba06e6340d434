"""CNI 1.1 on a real node: STATUS as containerd asks it, GC as a runtime does it, and the DELs of libcni."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.cluster.subnet import check, pool
from tests.cluster.workload import Workload, addresses
from tests.harness.cluster import Cluster
from tests.harness.cluster_node import AGENT_SOCKET, DEFAULT_NETWORK, PLUGINS, Node
from tests.harness.rest import eventually

PODS = 4


@pytest.fixture
def node(workload: Workload) -> Node:
    """A node with some pods."""
    workload.deploy("web", PODS, node="node1")
    workload.until_running("web", PODS)
    return workload.cluster.nodes["node1"]


def test_containerd_asks_the_agent_and_the_node_is_not_ready_without_it(cluster: Cluster) -> None:
    cluster.kill_agent("node2")
    said = eventually(lambda: cluster.ready_condition("node2"), lambda c: c.get("status") == "False")
    assert "subnetes agent" in said["message"], "the plugin's words, by way of bridge, containerd, kubelet"
    cluster.start_agent("node2")
    cluster.until_ready("node2")


def test_a_runtimes_gc_frees_what_it_does_not_know_and_nothing_else(node: Node, workload: Workload) -> None:
    with namespace(node, "lost") as path:
        lost = execute(node, "ADD", CNI_CONTAINERID="lost", CNI_NETNS=path, CNI_IFNAME="eth0")
    address = lost["ips"][0]["address"].partition("/")[0]
    assert address in held(node)
    sandboxes = node.ctr("containers", "ls", "-q", 'labels."io.cri-containerd.kind"==sandbox').split()
    valid = [{"containerID": each, "ifname": "eth0"} for each in sandboxes]
    execute(node, "GC", {"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid})
    assert held(node) == set(addresses(workload.pods("web")))
    check(workload.cluster)


def test_libcni_deletes_its_stale_attachments_before_it_asks_for_gc(node: Node, workload: Workload) -> None:
    """`cnitool gc` knows no valid attachment: libcni deletes all of its network, and bridge hands each on."""
    install_lab(node)
    pods = set(addresses(workload.pods("web")))
    with namespace(node, "one") as one, namespace(node, "two") as two:
        given = [cnitool(node, "add", each)["ips"][0]["address"].partition("/")[0] for each in (one, two)]
        assert held(node) == pods | set(given)
        cnitool(node, "gc", one)
    assert held(node) == pods
    check(workload.cluster)


def test_a_nodes_credentials_change_no_other_nodes_config(cluster: Cluster) -> None:
    own, other = (as_node(cluster, "node1", name) for name in ("node1", "node2"))
    assert own.returncode == 0, own.stderr
    assert other.returncode != 0
    assert "no NodeNetworkConfig but its own" in other.stderr


def as_node(cluster: Cluster, user: str, name: str) -> subprocess.CompletedProcess[str]:
    """A patch that changes nothing, of the named node's NNC."""
    patch = ("patch", "nnc", name, "--namespace=kube-system", "--type=merge", '--patch={"spec":{}}')
    config = f"--kubeconfig={cluster.nodes[user].kubeconfig}"
    return cluster.plane.machine.run(cluster.assets / "kubectl", config, "--cache-dir=/run/kubectl", *patch)


def held(node: Node) -> set[str]:
    """The addresses that the node's journal has as assigned."""
    records = pool(node)
    return {ip.address for key in records.keys for ip in records.by_key(key)}


def execute(node: Node, command: str, extra: dict[str, Any] | None = None, **variables: str) -> Any:
    """The plugin, as a runtime executes it."""
    ipam = {"type": "subnetes-ipam", "socket": AGENT_SOCKET}
    config = {"cniVersion": "1.1.0", "name": DEFAULT_NETWORK, "type": "bridge", "ipam": ipam} | (extra or {})
    environment = {"CNI_COMMAND": command, "CNI_PATH": PLUGINS} | variables
    plugin = f"{PLUGINS}/subnetes-ipam"
    done = node.machine.run(plugin, stdin=json.dumps(config), environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


def install_lab(node: Node) -> None:
    """A second network of the same agent, for cnitool alone: libcni remembers attachments by network."""
    ipam = {"type": "subnetes-ipam", "socket": AGENT_SOCKET}
    plugin = {"type": "bridge", "bridge": "lab0", "ipam": ipam}
    folder = node.machine.path("/run/lab")
    folder.mkdir(exist_ok=True)
    conflist = {"cniVersion": "1.1.0", "name": "lab", "plugins": [plugin]}
    (folder / "lab.conflist").write_text(json.dumps(conflist))


def cnitool(node: Node, command: str, namespace: str) -> Any:
    environment = {"NETCONFPATH": "/run/lab", "CNI_PATH": f"{node.assets}:{PLUGINS}"}
    done = node.machine.run(node.assets / "cnitool", command, "lab", namespace, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout) if done.stdout.strip() else None


@contextmanager
def namespace(node: Node, name: str) -> Iterator[str]:
    """A network namespace on the node that no pod has; `ip netns` would mount over containerd's folder."""
    path = f"/run/lab-{name}"
    node.machine.run("sh", "-ec", f"touch {path}; unshare --net={path} true")
    try:
        yield path
    finally:
        node.machine.run("sh", "-ec", f"umount {path}; rm {path}")

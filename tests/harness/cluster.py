"""A whole real Kubernetes on this machine, without images or virtual machines, and Subnetes on it.

etcd, API server, scheduler and controller-manager on one machine (see machine.py), DNC-RC beside them; each
node a machine with a kubelet, containerd and our agent. Needs root, runc and the binaries of kube_assets.py.
Tests use `Cluster` (tests/cluster/conftest.py); `make cluster` and `make cluster-down` are this module's `up`
and `down`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness import kube_assets, pause_image
from tests.harness.cluster_node import AGENT_SOCKET, SUBNETES, Node
from tests.harness.cluster_plane import ApiRefused, Plane, wait_for
from tests.harness.machine import PRIVATE, MachineFailed, Program
from tests.harness.runs import Run, base, remove_abandoned, runs

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTROLLER = "127.0.0.1:10093"
DEV = "dev"  # the name of the run that `make cluster` keeps
SUBNETS = "/apis/acn.azure.com/v1alpha1/namespaces/kube-system/clustersubnets"


class ClusterImpossible(Exception):
    """This machine cannot have a cluster; the text says why."""


@dataclass(frozen=True)
class Setting:
    """What a cluster is made of."""

    nodes: int = 3
    ours: bool = True
    """Our components give the pods' addresses; otherwise host-local does, to try the harness alone."""
    address_space: str = "10.251.0.0/16"
    """The ClusterSubnet `pods`; none is declared if empty."""
    batch: int | None = None
    """Its batch, if not the default."""
    agent_flags: list[str] = field(default_factory=list)
    controller_flags: list[str] = field(default_factory=list)


class Cluster:
    def __init__(self, setting: Setting | None = None, name: str | None = None) -> None:
        """With a name it is kept when we end, without one it ends with us."""
        self.setting = setting or Setting()
        self.assets = possible()
        self.nodes: dict[str, Node] = {}
        self.controller: Program | None = None
        self._name = name

    def __enter__(self) -> Cluster:
        self.run = Run.create(self._name)
        try:
            self._up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def down(self) -> None:
        self.run.remove()

    @property
    def kubeconfig(self) -> Path:
        return self.plane.folder / "admin.kubeconfig"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """What kubectl prints; a refusal is an error."""
        cache = f"--cache-dir={self.plane.folder / 'kubectl'}"  # its own: all clusters have one address
        config = f"--kubeconfig={self.kubeconfig}"
        binary = self.assets / "kubectl"
        done = self.plane.machine.run(binary, config, cache, *words, stdin=stdin, patience=180)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done.stdout

    def get(self, path: str) -> Any:
        return self.plane.call("GET", path)

    def subnetes(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Our own command beside the control plane, as its admin."""
        environment = {"KUBECONFIG": str(self.kubeconfig)}
        return self.plane.machine.run(SUBNETES, *words, environment=environment, patience=180)

    def add_node(self) -> Node:
        """One more node, started; `until_ready` waits for it."""
        node = self._prepare_node()
        self._start_node(node)
        return node

    def kill_agent(self, node: str) -> None:
        self.nodes[node].kill_agent()

    def start_agent(self, node: str) -> None:
        self.nodes[node].start_agent()

    def start_controller(self) -> None:
        """DNC-RC, beside the control plane, as its service account."""
        config = self.plane.kubeconfig("controller")
        words = (f"--kubeconfig={config}", f"--listen={CONTROLLER}", *self.setting.controller_flags)
        self.controller = self.plane.machine.start("controller", SUBNETES, "controller", *words)

    def declare(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "acn.azure.com/v1alpha1", "kind": "ClusterSubnet", "spec": spec}
        self.plane.call("POST", SUBNETS, body | {"metadata": {"name": name}})

    def ready(self, node: str) -> str:
        """True, False, Unknown, or nothing if the node is not known yet."""
        return str(self.ready_condition(node).get("status", ""))

    def ready_condition(self, node: str) -> dict[str, str]:
        try:
            conditions = self.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
        except (ApiRefused, KeyError):
            return {}
        return next((each for each in conditions if each["type"] == "Ready"), {})

    def until_ready(self, *names: str) -> None:
        watched = [self.nodes[name] for name in names or self.nodes]
        programs = [each for node in watched for each in (node.kubelet, node.agent) if each]
        wait_for(
            f"nodes {', '.join(node.name for node in watched)} Ready",
            lambda: all(self.ready(node.name) == "True" for node in watched),
            programs + ([self.controller] if self.controller else []),
            patience=120,
        )

    def must_run(self) -> None:
        """Fail, with the log, if a component of ours has ended by itself."""
        for program in (self.controller, *(node.agent for node in self.nodes.values())):
            if program is not None:
                program.must_run()

    def logs(self, characters: int = 2000) -> str:
        """The ends of the logs that tell most, for the report of a failed test."""
        files = (file for name in ("controller", "agent", "kubelet") for file in self._logs(name))
        return "\n".join(
            f"--- {file.parent.name}/{file.name}\n{file.read_text(errors='replace')[-characters:]}"
            for file in files
        )

    def _logs(self, name: str) -> list[Path]:
        return sorted(self.run.folder.glob(f"*/{name}.log"))

    def _up(self) -> None:
        pause_image.compile_program(self.run.init)
        self._image = self.run.folder / "pause.tar"
        pause_image.pack(self.run.init, self._image)
        self.plane = Plane(self.run.machine("control-plane"), self.assets)
        self.plane.start()
        prepared = [self._prepare_node() for _ in range(self.setting.nodes)]
        self.plane.settle()
        if self.setting.ours:
            self._install()
        for node in prepared:
            self._start_node(node)
        self.until_ready()

    def _prepare_node(self) -> Node:
        number = len(self.nodes) + 1
        node = Node(self.plane, self.run.machine(f"node{number}"), number)
        node.agent_flags = list(self.setting.agent_flags)
        self.nodes[node.name] = node
        node.start_runtime()
        return node

    def _start_node(self, node: Node) -> None:
        if self.setting.ours:
            node.install_plugin()
            ipam: dict[str, Any] = {"type": "subnetes-ipam", "socket": AGENT_SOCKET}
            node.start_agent()
        else:
            ranges = [[{"subnet": f"10.251.{node.number}.0/24"}]]
            ipam = {"type": "host-local", "dataDir": "/var/lib/cni/data", "ranges": ranges}
        node.install_network([{"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}])
        node.start_kubelet(self._image)

    def _install(self) -> None:
        """Our kinds, our rights, the subnet, and DNC-RC."""
        self.kubectl("apply", "-f", str(DEPLOY / "crds"))
        self.kubectl("apply", "-f", str(DEPLOY / "rbac"))
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        if self.setting.address_space:
            scaler = {"scaler": {"batch": self.setting.batch}} if self.setting.batch else {}
            self.declare("pods", addressSpace=[self.setting.address_space], **scaler)
        self.start_controller()


def possible(locate: Callable[[], Path] = kube_assets.locate) -> Path:
    """The binaries' folder, if this machine can have a cluster."""
    if os.geteuid() != 0:
        raise ClusterImpossible("a cluster needs root: it makes namespaces, mounts and containers")
    wanted = ("runc", "ip", "gcc", "unshare", "nsenter", "setpriv")
    if missing := [each for each in wanted if shutil.which(each) is None]:
        raise ClusterImpossible(f"{', '.join(missing)} not found; tools/packages installs what Debian has")
    try:
        assets = locate()
    except kube_assets.AssetsMissing as problem:
        raise ClusterImpossible(str(problem)) from problem
    if absent := [each for each in kube_assets.OPTIONAL if not (assets / each).exists()]:
        raise ClusterImpossible(f"{', '.join(absent)} not in {assets}; make kube-assets builds them with Go")
    for path in (assets, SUBNETES, base()):
        if hidden := [each for each in ("/run", *PRIVATE) if path.is_relative_to(each)]:
            raise ClusterImpossible(f"{path} is under {hidden[0]}, of which each machine has its own")
    return assets


def main(words: list[str]) -> int:
    try:
        if words == ["up"]:
            return _keep()
        if words == ["down"]:
            return _remove_all()
    except (ClusterImpossible, MachineFailed) as problem:
        print(f"cluster: {problem}", file=sys.stderr)
        return 1
    print("usage: python -m tests.harness.cluster up|down", file=sys.stderr)
    return 2


def _keep() -> int:
    possible(kube_assets.ensure)
    for run in (each for each in runs() if each.kept):
        if run.alive:
            raise ClusterImpossible(f"{run.folder} runs already; `make cluster-down` ends it")
        run.remove()  # the machine was switched off meanwhile
    cluster = Cluster(name=DEV)
    print("cluster: starting a control plane and three nodes", file=sys.stderr)
    cluster.__enter__()
    kubectl = _kubectl_script(cluster)
    print(f"kubeconfig: {cluster.kubeconfig} (its address is the control plane's, not the host's)")
    print(f"use it:     {kubectl} get nodes,clustersubnets,nnc -A")
    print(f"logs:       {cluster.run.folder}/*/*.log")
    print("end it:     make cluster-down")
    return 0


def _kubectl_script(cluster: Cluster) -> Path:
    """kubectl where the API server is: on the control plane's machine."""
    path = cluster.run.folder / "kubectl"
    enter = f"nsenter --target {cluster.plane.machine.pid} --net"
    words = f"--kubeconfig='{cluster.kubeconfig}' --cache-dir='{cluster.run.folder}/kubectl-cache'"
    path.write_text(f'#!/bin/sh\nexec {enter} "{cluster.assets}/kubectl" {words} "$@"\n')
    path.chmod(0o755)
    return path


def _remove_all() -> int:
    """The kept cluster, and what killed test runs left."""
    if os.geteuid() != 0:
        raise ClusterImpossible("to remove a cluster you must be root")
    removed = remove_abandoned(kept=True)
    print(f"cluster: removed {', '.join(removed) or 'nothing: there was none'}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A node of a test cluster: a machine with containerd, a kubelet, the reference CNI plugins and our agent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.harness import pause_image
from tests.harness.cluster_plane import Plane, is_socket, wait_for
from tests.harness.machine import Machine, MachineFailed, Program

SUBNETES = Path(sys.executable).parent / "subnetes"
CONF, PLUGINS = "/run/cni/net.d", "/run/cni/bin"
RUNTIME = "/run/containerd/containerd.sock"
AGENT_SOCKET, AGENT_STATE = "/run/subnetes/cns.sock", "/var/lib/subnetes/cns"
AGENT_PORT = 10092
DEFAULT_NETWORK = "subnetes"  # the network's name in its conflist

_CONTAINERD = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{runtime}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{image}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{assets}", "{plugins}"]
    conf_dir = "{conf}"
"""

_KUBELET: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "containerRuntimeEndpoint": f"unix://{RUNTIME}",
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "failCgroupV1": False,
    "failSwapOn": False,
    "evictionHard": dict.fromkeys(
        ("memory.available", "nodefs.available", "imagefs.available", "nodefs.inodesFree"), "0%"
    ),
    "clusterDNS": ["10.96.0.10"],  # nobody serves there; without one, each pod gets a warning
    "clusterDomain": "cluster.local",
    "maxPods": 250,
    "nodeStatusUpdateFrequency": "2s",
    "resolvConf": "",
    "volumePluginDir": "/var/lib/kubelet/volume-plugins",
}


class Node:
    def __init__(self, plane: Plane, machine: Machine, number: int) -> None:
        self.name = machine.name
        self.machine = machine
        self.number = number
        self.agent: Program | None = None
        self.agent_flags: list[str] = []
        self.assets = plane.assets
        self.address = plane.plug_in(machine, number)
        self.kubeconfig = plane.kubeconfig(self.name)

    @property
    def state(self) -> Path:
        """The agent's state folder, as seen from outside, also when the machine is off."""
        return self.machine.folder / "var-lib/subnetes/cns"

    def start_runtime(self) -> None:
        config = self._write(
            "containerd.toml",
            _CONTAINERD.format(
                runtime=RUNTIME, image=pause_image.NAME, assets=self.assets, plugins=PLUGINS, conf=CONF
            ),
        )
        path = f"PATH={self.assets}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self._containerd = self.machine.start("containerd", "env", path, "containerd", "-c", config)

    def start_kubelet(self, image: Path) -> None:
        """Once the runtime answers; the image must be there before the first pod."""
        wait_for("containerd", lambda: is_socket(self.machine.path(RUNTIME)), [self._containerd])
        self.ctr("images", "import", "--local", "--snapshotter", "native", str(image))
        config = self._write("kubelet.json", json.dumps(_KUBELET))
        self.kubelet = self.machine.start(
            "kubelet",
            self.assets / "kubelet",
            f"--config={config}",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        )

    def install_network(self, plugins: list[dict[str, Any]]) -> None:
        """The default network, which makes the node Ready if its plugins agree. Appears at once and whole."""
        conflist = {"cniVersion": "1.1.0", "name": DEFAULT_NETWORK, "plugins": plugins}
        source = self._write("network.conflist", json.dumps(conflist))
        target = self.machine.path(CONF) / "10-subnetes.conflist"
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(".new")
        temporary.write_bytes(source.read_bytes())
        temporary.replace(target)

    def install_plugin(self) -> None:
        done = self.machine.run(SUBNETES, "cni", "install", PLUGINS)
        if done.returncode:
            raise MachineFailed(f"subnetes cni install on {self.name}: {done.stderr}")

    def start_agent(self) -> None:
        """The agent, as this node; again after `kill_agent`, with the same state."""
        self.agent = self.machine.start(
            "agent",
            SUBNETES,
            "agent",
            f"--node-name={self.name}",
            f"--kubeconfig={self.kubeconfig}",
            f"--socket={AGENT_SOCKET}",
            f"--state-dir={AGENT_STATE}",
            f"--listen={self.address}:{AGENT_PORT}",
            "--containerd-root=/run/containerd",
            *self.agent_flags,
        )

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent = None

    def ctr(self, *words: str) -> str:
        """containerd's own client, in the kubelet's namespace."""
        done = self.machine.run(self.assets / "ctr", "-a", RUNTIME, "-n", "k8s.io", *words)
        if done.returncode:
            raise MachineFailed(f"ctr {' '.join(words)} on {self.name}: {done.stderr}")
        return done.stdout

    def _write(self, name: str, text: str) -> Path:
        path = self.machine.folder / name
        path.write_text(text)
        return path

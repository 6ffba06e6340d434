"""A container runtime in a test's hands: sandboxes made, ended and forgotten one by one."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from subnetes.cni import fallback
from subnetes.ipam.pool import State
from subnetes.kube.key import Key
from subnetes.simulation.plugin import configuration, environment
from subnetes.simulation.sandbox import Sandbox
from tests.scenarios.parts import LivingNode


@dataclass
class Runtime:
    living: LivingNode

    def sandbox(self, pod: str = "web", uid: str = "uid-1") -> Sandbox:
        return self.living.node.kubelet.sandboxes.make(Key("default", pod), uid)

    async def add(self, sandbox: Sandbox) -> str:
        (address,) = await self.living.node.kubelet.plugin.add(sandbox)
        return address

    async def delete(self, sandbox: Sandbox) -> None:
        await self.living.node.kubelet.plugin.delete(sandbox)

    def vanish(self, sandbox: Sandbox) -> None:
        """Its namespace is gone, and nobody says DEL."""
        self.living.node.kubelet.sandboxes.end(sandbox)

    def assigned(self) -> dict[str, str]:
        """container id → address, as the agent has it."""
        return {ip.holder.container_id: ip.address for ip in self.living.agent.ipam.pool if ip.holder}

    def addresses(self, state: State) -> set[str]:
        return {ip.address for ip in self.living.agent.ipam.pool if ip.state is state}

    def execute_delete(self, sandbox: Sandbox) -> int:
        """DEL by the executable plugin, as a runtime does it; its exit code."""
        variables = environment("DEL", sandbox) | {"SUBNETES_SOCKET": str(self.living.node.machine.socket)}
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(Path(fallback.__file__))],
            input=msgspec.json.encode(configuration()),
            env=os.environ | variables,
            capture_output=True,
            timeout=30,
            check=False,
        )
        return done.returncode

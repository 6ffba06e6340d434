"""The CNI plugin's side of the agent's socket, for callers that are Python already.

The executable in `cni/` speaks the same protocol; here no process is started, so that a thousand sandboxes
can be made on one machine. One request a connection: the length of the environment block (four bytes,
big-endian), the block of `NAME=value` texts that end in NUL, then the network configuration until our side is
shut down. The answer is one byte, the exit code, then what the plugin would print.
"""

import asyncio
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from subnetes.simulation.sandbox import Sandbox

NETWORK = "pods"
CNI_VERSION = "1.1.0"
IFNAME = "eth0"


class PluginFailed(Exception):
    """The agent answered with an error, or not at all."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Executes CNI verbs on one agent's socket."""

    socket: Path

    async def add(self, sandbox: Sandbox) -> list[str]:
        """The addresses that the sandbox has from now on, without their prefix lengths."""
        result = await self._result(environment("ADD", sandbox))
        return [each["address"].partition("/")[0] for each in result["ips"]]

    async def delete(self, sandbox: Sandbox) -> None:
        await self._result(environment("DEL", sandbox))

    async def status(self) -> None:
        """Raises PluginFailed, with the agent's reason, while pods cannot be served here."""
        await self._result({"CNI_COMMAND": "STATUS", "CNI_PATH": "/opt/cni/bin"})

    async def _result(self, variables: Mapping[str, str]) -> Any:
        code, output = await execute(self.socket, variables, msgspec.json.encode(configuration()))
        if code != 0:
            raise PluginFailed(_said(output))
        return msgspec.json.decode(output) if output.strip() else {}


def configuration() -> dict[str, Any]:
    return {
        "cniVersion": CNI_VERSION,
        "name": NETWORK,
        "type": "bridge",
        "ipam": {"type": "subnetes-ipam"},
    }


def environment(command: str, sandbox: Sandbox, ifname: str = IFNAME) -> dict[str, str]:
    """What a runtime sets for the plugin; see the CNI specification, section 2, and containerd's CNI_ARGS."""
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": sandbox.pod_namespace,
        "K8S_POD_NAME": sandbox.pod_name,
        "K8S_POD_INFRA_CONTAINER_ID": sandbox.id,
        "K8S_POD_UID": sandbox.pod_uid,
    }
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": sandbox.id,
        "CNI_NETNS": sandbox.netns,
        "CNI_IFNAME": ifname,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in arguments.items()),
        "CNI_PATH": "/opt/cni/bin",
    }


async def execute(socket: Path, variables: Mapping[str, str], stdin: bytes) -> tuple[int, bytes]:
    """The plugin's exit code and output."""
    block = b"".join(f"{name}={value}".encode() + b"\0" for name, value in variables.items())
    try:
        reader, writer = await asyncio.open_unix_connection(socket)
    except OSError as problem:
        raise PluginFailed(f"no agent at {socket}: {problem.strerror or problem}") from problem
    try:
        writer.write(struct.pack(">I", len(block)) + block + stdin)
        writer.write_eof()
        answer = await reader.read()
    except OSError as problem:
        raise PluginFailed(f"the agent at {socket} hung up: {problem.strerror or problem}") from problem
    finally:
        writer.close()
    if not answer:
        raise PluginFailed(f"the agent at {socket} hung up without an answer")
    return answer[0], answer[1:]


def _said(output: bytes) -> str:
    try:
        error = msgspec.json.decode(output)
        return " ".join(part for part in (f"[{error['code']}]", error["msg"], error.get("details")) if part)
    except (msgspec.DecodeError, KeyError, TypeError):
        return output.decode(errors="replace")[:200] or "no explanation"

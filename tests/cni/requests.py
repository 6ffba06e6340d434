"""Requests as the plugin's executable sends them, and answers as it prints them."""

import json
from typing import Any

NETNS = "/var/run/netns/cni-1"


def config(**changes: Any) -> dict[str, Any]:
    """A good network config; a change to None takes the member away."""
    base: dict[str, Any] = {"cniVersion": "1.1.0", "name": "podnet", "type": "bridge", "ipam": {}}
    return {name: value for name, value in (base | changes).items() if value is not None}


def environment(command: str, container_id: str = "c1", ifname: str = "eth0", **more: str) -> dict[str, str]:
    base = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container_id,
        "CNI_IFNAME": ifname,
        "CNI_NETNS": NETNS,
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=pod-1;K8S_POD_UID=uid-1",
    }
    return {name: value for name, value in (base | more).items() if value != ""}


def request(variables: dict[str, str], text: dict[str, Any] | bytes) -> bytes:
    block = b"".join(f"{name}={value}\0".encode() for name, value in variables.items())
    body = text if isinstance(text, bytes) else json.dumps(text).encode()
    return len(block).to_bytes(4, "big") + block + body


def parsed(answer: bytes) -> tuple[int, Any]:
    """The exit code, and the document; None where nothing is printed."""
    return answer[0], json.loads(answer[1:]) if len(answer) > 1 else None

"""Webhooks as processes, reviews to send to them, and a client that trusts what the CRD says."""

from __future__ import annotations

import asyncio
import io
import json
import re
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from subnetes.api.conversion import HUB, OLD
from tests.harness.certificates import Authority, Pair
from tests.harness.processes import Child, start

NAME = "127.0.0.1"
Object = dict[str, Any]


def old_nnc(name: str = "node-1", addresses: int = 3) -> Object:
    """As an old control plane writes it: v1alpha, one network container."""
    assignments = [
        {"name": f"5f0f2c1e-8a0e-4c53-9d1f-{number:012x}", "ip": f"10.241.{number // 250}.{number % 250 + 1}"}
        for number in range(addresses)
    ]
    container = {
        "id": "1f7c0d8a-55d5-4b4f-8a4c-0f7a3d6a9e10",
        "assignmentMode": "dynamic",
        "type": "vnet",
        "defaultGateway": "10.241.0.1",
        "nodeIP": "10.240.0.4",
        "primaryIP": "10.241.0.4",
        "subnetName": "pods",
        "subnetID": "pods",
        "subnetAddressSpace": "10.241.0.0/16",
        "subcriptionID": "9b8218f9-902a-4d20-a65c-e98acec5362f",
        "resourceGroupID": "group",
        "vnetID": "vnet",
        "status": "NCUpdateSuccess",
        "version": 4,
        "ipAssignments": assignments,
    }
    scaler = {
        "batchSize": 16,
        "maxIPCount": 250,
        "releaseThresholdPercent": 150,
        "requestThresholdPercent": 50,
    }
    return {
        "apiVersion": OLD,
        "kind": "NodeNetworkConfig",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "uid": "0d2b6a3e-3f1c-4c58-9b57-2f6b7f7a1c11",
            "resourceVersion": "12345",
            "generation": 3,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kubernetes.azure.com/podnetwork-type": "dynamic"},
        },
        "spec": {"requestedIPCount": addresses, "ipsNotInUse": []},
        "status": {
            "assignedIPCount": addresses,
            "networkContainers": [container],
            "scaler": scaler,
            "status": "Updated",
        },
    }


def review(objects: list[Any], target: Any = HUB, uid: Any = "review-1") -> bytes:
    request = {"uid": uid, "desiredAPIVersion": target, "objects": objects}
    return json.dumps(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    ).encode()


def response_of(body: bytes) -> Object:
    """The response of a well-formed answer."""
    answer = json.loads(body)
    assert (answer["apiVersion"], answer["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert set(answer) == {"apiVersion", "kind", "response"}
    response: Object = answer["response"]
    assert set(response) == {"uid", "result", "convertedObjects"}
    assert isinstance(response["uid"], str)
    result = response["result"]
    if result["status"] == "Success":
        assert result == {"status": "Success"}
    else:
        assert result["status"] == "Failure"
        assert result["message"]
        assert response["convertedObjects"] == []
    return response


@dataclass
class Webhook:
    child: Child
    url: str
    page: str

    @property
    def pid(self) -> int:
        return self.child.process.pid


@contextmanager
def webhook(folder: Path, *words: str, name: str = "webhook") -> Iterator[Webhook]:
    """`subnetes webhook` on loopback, ready; whatever happens, it is ended."""
    log = folder / f"{name}.log"
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "subnetes.cli.main", "webhook"]
    child = start([*command, "--address=127.0.0.1:0", "--listen=127.0.0.1:0", "--verbose", *words], log)
    try:
        url, page = _ready(child)
        yield Webhook(child, url, page)
    finally:
        child.stop(patience=90)


def _ready(child: Child, patience: float = 60) -> tuple[str, str]:
    deadline = time.monotonic() + patience
    while True:
        found = re.search(r"is ready: (\S+) \(health and metrics: (\S+)\)", child.tail(100_000))
        if found:
            return found[1], found[2]
        if child.process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"the webhook is not ready: {child.tail()}")
        time.sleep(0.02)


def with_files(pair: Pair) -> Sequence[str]:
    return (f"--tls-cert={pair.certificate}", f"--tls-key={pair.key}")


@asynccontextmanager
async def session(trusted: bytes | Path, connections: int = 100) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that trusts these authorities alone."""
    connector = aiohttp.TCPConnector(ssl=trusting(trusted), limit=connections)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120)) as client:
        yield client


def trusting(trusted: bytes | Path) -> ssl.SSLContext:
    text = trusted.read_bytes() if isinstance(trusted, Path) else trusted
    return ssl.create_default_context(cadata=text.decode())


async def post(client: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, bytes]:
    data = io.BytesIO(body) if len(body) > 1 << 16 else body
    async with client.post(url, data=data, headers={"Content-Type": "application/json"}) as answer:
        return answer.status, await answer.read()


def authority(folder: Path) -> Authority:
    return Authority.create(folder / "ca")


async def metric(client: aiohttp.ClientSession, page: str, name: str) -> float:
    async with client.get(f"{page}/metrics") as answer:
        text = await answer.text()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def until_metric(client: aiohttp.ClientSession, page: str, name: str, least: float) -> None:
    async with asyncio.timeout(60):
        while await metric(client, page, name) < least:
            await asyncio.sleep(0.02)

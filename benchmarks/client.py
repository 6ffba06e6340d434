"""What a status patch costs the client: ours beside lightkube's, on one real kube-apiserver.

Run by `make bench-client`. Every agent and controller of a cluster spends its CPU here, so the figure is a
promise: at most 0.5 ms a patch, and at most a third of lightkube's in the same run. Each client lives in a
process of its own, so that neither pays for the other's heap, and both patch the same NodeNetworkConfig of 16
IPs in turn, block by block: what else the machine does hits both alike.
Counted is the process's CPU time, user and system, from one document to its decoded answer.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from subnetes.api.crd import crds
from subnetes.api.meta import ObjectMeta
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.resource import Resource
from subnetes.kube.client import Client
from subnetes.kube.errors import NotFound
from subnetes.kube.patches import MergePatch
from subnetes.kube.sources import from_kubeconfig
from tests.harness import kube_assets
from tests.harness.control_plane import ControlPlane

BLOCKS, BLOCK, WARM_UP = 20, 50, 2  # blocks, patches a block, blocks that do not count
MOST_MILLISECONDS = 0.5
MOST_OF_LIGHTKUBE = 1 / 3
NAMESPACE, NAME = "default", "node-1"
CRD = Resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


Patching = Callable[[dict[str, Any]], Awaitable[None]]


def patch_number(number: int) -> dict[str, Any]:
    """A grant as DNC-RC writes it: every patch differs from the one before."""
    addresses = [{"id": f"{number:08x}-{i:04x}", "address": f"10.0.{number % 250}.{i}"} for i in range(16)]
    container = {
        "id": "nc-1",
        "version": number,
        "primaryIP": "10.0.0.4",
        "nodeIP": "10.240.0.5",
        "defaultGateway": "10.0.0.1",
        "subnetName": "podnet",
        "subnetAddressSpace": "10.0.0.0/16",
        "assignmentMode": "dynamic",
        "secondaryIPs": addresses,
        "secondaryIPCount": len(addresses),
    }
    return {"status": {"status": "Updated", "networkContainers": [container]}}


def ours(client: Client) -> Patching:
    async def patch(document: dict[str, Any]) -> None:
        await client.patch(NodeNetworkConfig, NAME, MergePatch(document), NAMESPACE, subresource="status")

    return patch


def theirs(kubeconfig: Path) -> tuple[Any, Patching]:
    # Imported here: our own worker must not carry their modules.
    from lightkube import AsyncClient
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.types import PatchType

    resource = NodeNetworkConfig.resource
    kind = create_namespaced_resource(resource.group, resource.version, resource.kind, resource.plural)
    client = AsyncClient(config=KubeConfig.from_file(kubeconfig))

    async def patch(document: dict[str, Any]) -> None:
        await client.patch(kind.Status, NAME, document, namespace=NAMESPACE, patch_type=PatchType.MERGE)

    return client, patch


async def cpu_seconds(patch: Patching, first: int) -> float:
    documents = [patch_number(number) for number in range(first, first + BLOCK)]
    before = time.process_time()
    for document in documents:
        await patch(document)
    return time.process_time() - before


async def serve_ours(kubeconfig: Path) -> None:
    async with Client(from_kubeconfig(kubeconfig)) as client:
        await serve(ours(client))


async def serve_theirs(kubeconfig: Path) -> None:
    client, patch = theirs(kubeconfig)
    await serve(patch)
    await client.close()


async def serve(patch: Patching) -> None:
    """In a worker: patch a block for every line on stdin, and say what it cost."""
    for line in sys.stdin:
        print(await cpu_seconds(patch, int(line)), flush=True)


WORKERS = {"subnetes": serve_ours, "lightkube": serve_theirs}


def measure(kubeconfig: Path) -> dict[str, float]:
    """Milliseconds of client CPU a patch, by client."""
    with ExitStack() as stack:
        workers = {name: stack.enter_context(worker(name, kubeconfig)) for name in WORKERS}
        blocks: dict[str, list[float]] = {name: [] for name in workers}
        for block in range(-WARM_UP, BLOCKS):
            for name, process in workers.items():
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(f"{(block + WARM_UP) * BLOCK}\n")
                process.stdin.flush()
                blocks[name].append(float(process.stdout.readline()))
    return {name: 1000 * median(spent[WARM_UP:]) / BLOCK for name, spent in blocks.items()}


@contextmanager
def worker(name: str, kubeconfig: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.client", name, str(kubeconfig)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process  # leaving closes its stdin, which ends it


def report(cost: dict[str, float]) -> bool:
    ratio = cost["subnetes"] / cost["lightkube"]
    kept = cost["subnetes"] <= MOST_MILLISECONDS and ratio <= MOST_OF_LIGHTKUBE
    print(f"client CPU a status patch ({BLOCKS * BLOCK} each, median of {BLOCKS} blocks in turn):")
    for name, milliseconds in cost.items():
        print(f"  {name:<10} {milliseconds:.3f} ms")
    print(f"  ratio      {ratio:.2f} (1/{1 / ratio:.1f})")
    print(f"at most {MOST_MILLISECONDS} ms and 1/3 of lightkube's: {'kept' if kept else 'BROKEN'}")
    return kept


async def prepare(kubeconfig: Path) -> None:
    """The kind and the object; a new kind's endpoint appears a moment after its definition."""
    async with Client(from_kubeconfig(kubeconfig)) as client, asyncio.timeout(30):
        for crd in crds():
            await client.create(crd, resource=CRD)
        while True:
            try:
                await client.create(NodeNetworkConfig(metadata=ObjectMeta(name=NAME)), namespace=NAMESPACE)
                return
            except NotFound:
                await asyncio.sleep(0.1)


def main(arguments: list[str]) -> int:
    if arguments:
        name, kubeconfig = arguments
        asyncio.run(WORKERS[name](Path(kubeconfig)))
        return 0
    with ControlPlane(kube_assets.locate()) as plane:
        asyncio.run(prepare(plane.kubeconfig))
        return 0 if report(measure(plane.kubeconfig)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

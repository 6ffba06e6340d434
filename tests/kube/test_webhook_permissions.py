"""`subnetes webhook` on a real API server, with no more than deploy/rbac/webhook.yaml gives it."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.core import Secret
from subnetes.api.crd import KINDS, WebhookConversion, custom_resource_definition
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import ObjectMeta
from subnetes.api.names import NAMESPACE
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.kube.client import Client
from subnetes.kube.errors import Forbidden, NotFound
from subnetes.kube.sources import from_kubeconfig
from subnetes.webhook import trust
from subnetes.webhook.authority import SECRET
from tests.harness.clients import client_of, eventually
from tests.harness.control_plane import ControlPlane
from tests.harness.processes import start
from tests.webhook.world import NAME, old_nnc, webhook

ROLES = Path(__file__).parents[2] / "deploy" / "rbac" / "webhook.yaml"
USER = "system:serviceaccount:kube-system:subnetes-webhook"
OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig


@pytest.fixture
def plane(assets: Path) -> Iterator[ControlPlane]:
    with ControlPlane(assets) as running:
        done = running.kubectl("apply", "-f", str(ROLES))
        assert done.returncode == 0, done.stderr
        yield running


async def trusted(client: Client) -> bytes:
    while not (bundle := trust.published(await trust.definition(client), [NAME])):
        await asyncio.sleep(0.05)
    return bundle


async def is_served(client: Client) -> None:
    while True:
        try:
            await client.list(OLD, NAMESPACE)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


async def test_the_crd_comes_to_trust_it_and_objects_are_converted(
    plane: ControlPlane, tmp_path: Path
) -> None:
    user = plane.users[USER].kubeconfig
    starting = webhook(tmp_path, f"--kubeconfig={user}", f"--hosts={NAME}", "--drain=0")
    served = await asyncio.to_thread(starting.__enter__)  # before there is a CRD
    try:
        async with client_of(plane) as admin, Client(from_kubeconfig(user)) as limited:
            await admin.create(custom_resource_definition(KINDS[0], WebhookConversion(served.url)))
            async with asyncio.timeout(60):
                bundle = await trusted(admin)
                await is_served(admin)
            secret = await admin.get(Secret, SECRET, NAMESPACE)
            assert secret.data is not None
            assert secret.data["ca.crt"] == bundle
            document = {key: value for key, value in old_nnc().items() if key != "status"}
            document["metadata"] = {"name": "node-1", "namespace": NAMESPACE}
            await admin.create(document, resource=OLD.resource)
            seen = await admin.get(NodeNetworkConfig, "node-1", NAMESPACE)
            assert seen.spec is not None
            assert (await admin.get(OLD, "node-1", NAMESPACE)).spec.requested_ip_count == 3  # type: ignore[union-attr]
            await nothing_else_is_allowed(admin, limited)
        assert "Forbidden" not in served.child.tail(10**6)
    finally:
        starting.__exit__(None, None, None)


async def test_a_secret_that_is_missing_is_told_until_it_is_there(
    plane: ControlPlane, tmp_path: Path
) -> None:
    async with client_of(plane) as admin:
        await admin.delete(Secret, SECRET, NAMESPACE)
    words = (f"--kubeconfig={plane.users[USER].kubeconfig}", f"--hosts={NAME}", "--address=127.0.0.1:0")
    child = start([sys.executable, "-m", "subnetes.cli.main", "webhook", *words], tmp_path / "log")
    try:
        await eventually(lambda: "we may not create it" in child.tail())
        assert "apply deploy/rbac/webhook.yaml" in child.tail()
        assert plane.kubectl("apply", "-f", str(ROLES)).returncode == 0
        await eventually(lambda: "is ready" in child.tail(100_000), 90)
        assert plane.kubectl("apply", "-f", str(ROLES)).returncode == 0
        async with client_of(plane) as admin:
            assert (await admin.get(Secret, SECRET, NAMESPACE)).data, "applying again leaves it alone"
    finally:
        child.stop()


async def nothing_else_is_allowed(admin: Client, limited: Client) -> None:
    await admin.create(Secret(metadata=ObjectMeta(name="other", namespace=NAMESPACE), data={"a": b"b"}))
    refused = (
        limited.get(Secret, "other", NAMESPACE),
        limited.list(Secret, NAMESPACE),
        limited.create(Secret(metadata=ObjectMeta(name="third", namespace=NAMESPACE))),
        limited.delete(Secret, SECRET, NAMESPACE),
        limited.delete(CustomResourceDefinition, trust.CRD),
        limited.list(CustomResourceDefinition),
        limited.get(NodeNetworkConfig, "node-1", NAMESPACE),
    )
    for each in refused:
        with pytest.raises(Forbidden):
            await each

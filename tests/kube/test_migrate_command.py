"""`subnetes migrate` from a cluster that only knows v1alpha, there and back; DNC-RC with its own rights.

Both servers are this module's own, for there is one CRD of this name in a cluster.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from subnetes.api import migration as rules
from subnetes.api.conversion import convert
from subnetes.api.crd import WebhookConversion
from subnetes.api.names import NAMESPACE, RELEASE_FINALIZER
from subnetes.cli.main import main
from subnetes.controllers.migration import Migration, Pace
from subnetes.controllers.term import Term
from subnetes.kube.client import Client
from subnetes.kube.sources import from_kubeconfig
from subnetes.webhook.certificates import Holdings, kept, make_authority, make_leaf
from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.old_crds import field_crd
from tests.harness.old_nncs import field_nncs
from tests.harness.requests import requests, writes
from tests.harness.rest import Rest, eventually
from tests.harness.stored import in_etcd, in_sqlite
from tests.harness.webhook import ConversionWebhook, converting
from tests.harness.widgets import install, uninstall

pytestmark = pytest.mark.slow

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = f"{CRDS}/{rules.NAME}"
ROLES = Path(__file__).parents[2] / "deploy" / "rbac" / "controller.yaml"
CONTROLLER = "system:serviceaccount:kube-system:subnetes-controller"
OLD, HUB = "acn.azure.com/v1alpha", "acn.azure.com/v1beta1"
COUNT = 34  # twice every shape
SETTLE = 2.0  # also a single API server may write by the CRD of before for a moment

Server = ControlPlane | Embedded


def collection(version: str = OLD, namespace: str = NAMESPACE) -> str:
    return f"/apis/{version}/namespaces/{namespace}/nodenetworkconfigs"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "embedded":
        with Embedded() as server:
            yield server
    else:
        with ControlPlane(request.getfixturevalue("assets")) as plane:
            done = plane.kubectl("apply", "-f", str(ROLES))
            assert done.returncode == 0, done.stderr
            yield plane


@dataclass
class Cluster:
    server: Server
    rest: Rest
    webhook: ConversionWebhook
    ca_file: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def url(self) -> str:
        found: str = self.webhook.crd_conversion()["webhook"]["clientConfig"]["url"]
        return found

    def run(self, *words: str) -> tuple[int, str, str]:
        """The command's code, what it said, what it complained of."""
        self.capsys.readouterr()
        code = main(["migrate", "--kubeconfig", str(self.server.kubeconfig), *words])
        said = self.capsys.readouterr()
        return code, said.out, said.err

    def migrate(self, *words: str) -> tuple[int, str, str]:
        return self.run("--webhook-url", self.url, "--ca-file", str(self.ca_file), *words)

    def leases_of_others(self) -> list[dict[str, Any]]:
        """All but those by which API servers say that they live."""
        found = self.rest.get("/apis/coordination.k8s.io/v1/leases").ok()["items"]
        return [each for each in found if not each["metadata"]["name"].startswith("apiserver-")]

    def plant(self, count: int = COUNT, crd: dict[str, Any] | None = None) -> None:
        """As Azure's controllers write them."""
        install(self.rest, crd or field_crd())
        for each in field_nncs(count):
            body = copy.deepcopy(each.document)
            body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace", "labels")}
            made = self.rest.post(collection(), body, fieldManager="dnc-rc").ok()
            if each.status is not None:
                whole = made | {"status": each.status}
                self.rest.put(f"{collection()}/{each.name}/status", whole, fieldManager="dnc-rc").ok()

    def rewrite(self) -> None:
        """DNC-RC's part, with the rights that it has."""
        asyncio.run(self._rewrite())

    async def _rewrite(self) -> None:
        server = self.server
        file = server.users[CONTROLLER].kubeconfig if isinstance(server, ControlPlane) else server.kubeconfig
        async with Client(from_kubeconfig(file), field_manager="subnetes-controller") as client:
            term = Term("local", NAMESPACE, "replica-1", lambda: True)
            migration = Migration(term, client, Pace(rate=1000.0, settle=SETTLE))
            while wait := await migration.look():
                await asyncio.sleep(wait)

    def crd(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.get(CRD).ok()
        return found

    def stored_versions(self) -> list[str]:
        found: list[str] = self.crd()["status"]["storedVersions"]
        return found

    def stored(self) -> Counter[str]:
        if isinstance(self.server, ControlPlane):
            return in_etcd(self.server.etcd_url, rules.NAME)
        return in_sqlite(self.server.data, rules.NAME)

    def seen(self, *without: str) -> dict[str, Any]:
        """Every NNC as clients of v1alpha see it."""
        # 429: "storage is (re)initializing", for a moment after the CRD was written
        items = eventually(lambda: self.rest.get(collection()), lambda got: got.code != 429).ok()["items"]
        for each in items:
            for key in ("resourceVersion", "annotations", *without):
                each["metadata"].pop(key, None)
        return {each["metadata"]["name"]: each for each in items}

    def replace(self, crd: dict[str, Any]) -> None:
        """`kubectl replace` where there is kubectl, as docs/migration.md says it."""
        del crd["metadata"]["resourceVersion"]
        if isinstance(self.server, ControlPlane):
            done = self.server.kubectl("replace", "-f", "-", stdin=json.dumps(crd))
            assert done.returncode == 0, done.stderr
        else:
            crd["metadata"]["resourceVersion"] = self.crd()["metadata"]["resourceVersion"]
            self.rest.put(CRD, crd).ok()

    def crd_writes(self, before: Counter[Any]) -> int:
        return writes(requests(self.server) - before, "customresourcedefinitions")


@pytest.fixture
def cluster(place: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cluster]:
    rest = Rest(place.url, place.ca_file, place.token)
    with ConversionWebhook(tmp_path / "webhook", converting(convert)) as webhook:
        config = webhook.crd_conversion()["webhook"]["clientConfig"]
        ca_file = tmp_path / "ca.crt"
        ca_file.write_bytes(base64.b64decode(config["caBundle"]))
        try:
            yield Cluster(place, rest, webhook, ca_file, capsys)
        finally:
            webhook.behaviour = converting(convert)
            uninstall(rest, rules.NAME)
            rest.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/subnetes-nnc-migration")


@pytest.mark.slow
def test_from_v1alpha_to_v1beta1_and_back(cluster: Cluster) -> None:
    cluster.plant()
    crd = cluster.crd()
    crd["metadata"] |= {"labels": {"theirs": "stays"}, "annotations": {"note": "stays"}}
    cluster.rest.put(CRD, crd).ok()
    first, before = cluster.seen(), requests(cluster.server)
    assert cluster.stored() == {OLD: COUNT}

    code, said, complaint = cluster.migrate()
    assert (code, complaint) == (0, "")
    assert "v1alpha only, stored in v1alpha -> v1alpha and v1beta1, converted by a webhook" in said
    assert cluster.crd_writes(before) == 1
    crd = cluster.crd()
    versions = [(each["name"], each["served"], each["storage"]) for each in crd["spec"]["versions"]]
    assert sorted(versions) == [("v1alpha", True, False), ("v1beta1", True, True)]
    assert crd["metadata"]["labels"] == {"theirs": "stays"}
    assert crd["metadata"]["annotations"] == {"note": "stays"}
    assert cluster.stored() == {OLD: COUNT}, "the update alone rewrites nothing"
    assert cluster.seen() == first

    cluster.rewrite()
    assert cluster.stored() == {HUB: COUNT}
    assert cluster.stored_versions() == ["v1beta1"]
    assert cluster.seen() == first, "managedFields too"

    before = requests(cluster.server)
    assert cluster.migrate()[0] == 0
    assert cluster.run()[0] == 0, "the CRD says where the webhook is"
    assert cluster.crd_writes(before) == 0

    code, said, _ = cluster.run("rollback")
    assert code == 0
    assert "DNC-RC rewrites stored NNCs to v1alpha" in said
    cluster.rewrite()
    assert cluster.stored() == {OLD: COUNT}
    assert cluster.stored_versions() == ["v1alpha"]
    assert cluster.seen() == first


@pytest.mark.slow
def test_rolled_back_before_the_last_step_with_writes_of_both_sides(cluster: Cluster) -> None:
    cluster.plant()
    backup = cluster.crd()
    cluster.migrate()
    names = sorted(cluster.seen())
    for name in names[:10]:  # DNC-RC came as far as this
        cluster.rest.patch(f"{collection(HUB)}/{name}", {}).ok()
    cluster.rest.patch(f"{collection(HUB)}/{names[0]}", {"metadata": {"labels": {"new": "1"}}}).ok()
    cluster.rest.patch(f"{collection(OLD)}/{names[20]}", {"spec": {"requestedIPCount": 99}}).ok()
    assert cluster.stored() == {HUB: 11, OLD: COUNT - 11}
    assert cluster.stored_versions() == ["v1alpha", "v1beta1"]
    before = cluster.seen()
    assert cluster.run("rollback")[0] == 0
    made = {"apiVersion": OLD, "kind": "NodeNetworkConfig", "metadata": {"name": "zz"}}
    cluster.rest.post(collection(OLD), made).ok()
    cluster.rewrite()
    assert cluster.stored() == {OLD: COUNT + 1}
    assert cluster.stored_versions() == ["v1alpha"]
    after = cluster.seen()
    assert after.pop("zz")
    assert after == before

    cluster.replace(backup)
    assert rules.standing(cluster.crd()).stage is rules.Stage.OLD_ONLY
    cluster.rest.delete(f"{collection(OLD)}/zz").ok()
    assert cluster.seen() == before


def test_a_dry_run_says_everything_and_writes_nothing(cluster: Cluster) -> None:
    cluster.plant(5)
    before, leases, asked = cluster.crd(), cluster.leases_of_others(), requests(cluster.server)
    code, said, complaint = cluster.migrate("--dry-run")
    assert (code, complaint) == (0, "")
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "webhook",
        "NNCs",
        "CRD",
        "then",
        "dry run",
    ]
    assert "NNCs: 5 convert to v1beta1 and back" in said
    assert "converts both ways (asked directly, certificate checked)" in said
    assert "in one update" in said
    assert "DNC-RC rewrites 5 NNCs to v1beta1" in said
    made = requests(cluster.server) - asked
    written = {each[:2] for each in made if each[0] not in ("GET", "LIST", "WATCH")}
    assert written <= {("PUT", "leases")}  # kube-apiserver renews its own every ten seconds:
    assert cluster.leases_of_others() == leases  # no other was written
    assert cluster.crd() == before
    assert cluster.migrate()[0] == 0
    asked = requests(cluster.server)
    assert cluster.run("rollback", "--dry-run")[0] == 0
    assert cluster.crd_writes(asked) == 0


def test_where_there_is_no_crd_it_is_created_whole(cluster: Cluster) -> None:
    assert "not installed" in cluster.run("status")[1]
    code, said, _ = cluster.migrate("--dry-run")
    assert (code, "in one creation" in said, "nothing to rewrite" in said) == (0, True, True)
    assert cluster.rest.get(CRD).code == 404
    assert cluster.migrate()[0] == 0
    assert cluster.stored_versions() == ["v1beta1"]
    assert cluster.rest.get(collection(OLD)).ok()["items"] == []
    assert cluster.migrate()[1].startswith("webhook: ")
    assert "nothing: every NNC is stored in v1beta1" in cluster.run("status")[1]


def hangs_up(_: object) -> None:
    return None


def relabels(obj: dict[str, Any], to: str) -> dict[str, Any]:
    return obj | {"apiVersion": to}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (hangs_up, "does not convert"),
        (converting(relabels), "it made"),
        (lambda _: b"{}", "no ConversionReview"),
    ],
    ids=["hangs-up", "relabels", "garbage"],
)
def test_without_a_webhook_that_converts_the_crd_stays_as_it_is(
    cluster: Cluster, behaviour: Callable[[Any], Any], said: str
) -> None:
    cluster.plant(1)
    cluster.webhook.behaviour = behaviour
    before = cluster.crd()
    for words in ((), ("--dry-run",)):
        code, _, complaint = cluster.migrate(*words)
        assert code == 1
        assert said in complaint
        assert "the CRD stays as it is" in complaint
    assert cluster.crd() == before


def test_the_webhooks_certificate_must_be_of_the_bundles_authority(cluster: Cluster, tmp_path: Path) -> None:
    install(cluster.rest, field_crd())
    stranger = tmp_path / "stranger.crt"
    stranger.write_bytes(cluster.server.ca_file.read_bytes())
    code, _, complaint = cluster.run("--webhook-url", cluster.url, "--ca-file", str(stranger))
    assert (code, "certificate" in complaint.lower()) == (1, True), complaint
    code, _, complaint = cluster.run("--webhook-url", cluster.url)
    assert (code, "subnetes-webhook-certs has no ca.crt" in complaint) == (1, True)
    code, _, complaint = cluster.run()
    assert (code, "--webhook-url or --webhook-service" in complaint) == (1, True)
    assert rules.standing(cluster.crd()).stage is rules.Stage.OLD_ONLY


def test_the_bundle_is_in_the_webhooks_secret(cluster: Cluster) -> None:
    install(cluster.rest, field_crd())
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    bundle = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    metadata = {"name": "subnetes-webhook-certs"}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"ca.crt": bundle}}
    cluster.rest.post(secrets, body).ok()
    try:
        assert cluster.run("--webhook-url", cluster.url)[0] == 0
    finally:
        cluster.rest.delete(f"{secrets}/subnetes-webhook-certs").ok()
    assert cluster.crd()["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] == bundle


def test_a_certificate_that_the_api_server_would_not_trust_is_refused(cluster: Cluster) -> None:
    install(cluster.rest, field_crd())
    now = datetime.now(UTC)
    first, second = (make_authority(now, timedelta(days=9)) for _ in range(2))
    leaf = make_leaf(first, [f"hook.{NAMESPACE}.svc"], now, timedelta(days=1))
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    for authority, name, said in (
        (second, "hook", "signed by no authority"),
        (first, "other", f"not for other.{NAMESPACE}.svc"),
        (first, "hook", "the webhook does not convert"),  # trusted; there is no such service
    ):
        data = {
            key: base64.b64encode(value).decode() for key, value in kept(Holdings((authority,), leaf)).items()
        }
        metadata = {"name": "subnetes-webhook-certs"}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
        cluster.rest.post(secrets, body).ok()
        try:
            code, _, complaint = cluster.run("--webhook-service", f"{NAMESPACE}/{name}")
        finally:
            cluster.rest.delete(f"{secrets}/subnetes-webhook-certs").ok()
        assert (code, said in complaint) == (1, True), complaint
    assert rules.standing(cluster.crd()).stage is rules.Stage.OLD_ONLY


def test_an_nnc_that_cannot_be_converted_is_named_before_anything_is_written(cluster: Cluster) -> None:
    crd = field_crd()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"]["properties"]["availabilityZone"] = {"x-kubernetes-int-or-string": True}
    cluster.plant(3, crd)
    for number in range(7):
        body = {"apiVersion": OLD, "kind": "NodeNetworkConfig", "metadata": {"name": f"bad-{number}"}}
        cluster.rest.post(collection(), body | {"spec": {"availabilityZone": "one"}}).ok()
    before = cluster.crd()
    for words in ((), ("--dry-run",)):
        code, _, complaint = cluster.migrate(*words)
        assert code == 1
        assert "7 of 10 NNCs cannot be converted" in complaint
        assert f"{NAMESPACE}/bad-0: " in complaint
        assert "spec.availabilityZone" in complaint
        assert "and 2 more" in complaint
    assert cluster.crd() == before
    for number in range(7):
        patch = {"spec": {"availabilityZone": 1}}
        cluster.rest.patch(f"{collection()}/bad-{number}", patch).ok()
    assert cluster.migrate()[0] == 0


def test_fields_that_our_schema_lacks_are_not_dropped_in_silence(cluster: Cluster) -> None:
    crd = field_crd()
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    containers = schema["status"]["properties"]["networkContainers"]["items"]
    containers["properties"]["hostMode"] = {"type": "string"}
    cluster.plant(2, crd)
    name = min(cluster.seen())
    path = f"{collection()}/{name}/status"
    used = {"status": {"networkContainers": [{"id": "a", "hostMode": "swift"}]}}
    cluster.rest.patch(path, used).ok()
    before = cluster.crd()
    for words in ((), ("--dry-run",)):
        code, _, complaint = cluster.migrate(*words)
        assert code == 1
        assert f"status.networkContainers[].hostMode (1 NNCs, as {NAMESPACE}/{name})" in complaint
    assert cluster.crd() == before
    cluster.rest.patch(path, {"status": {"networkContainers": [{"id": "a"}]}}).ok()
    code, said, _ = cluster.migrate()
    assert code == 0
    assert "used by no NNC, go: status.networkContainers[].hostMode" in said


def test_a_roll_back_waits_for_v1alpha_alone(cluster: Cluster) -> None:
    """Where one NNC cannot be shown in v1beta1, rolling back is the way out."""
    cluster.plant(3)
    cluster.migrate()
    bad = min(cluster.seen())

    def not_that_one(obj: dict[str, Any], to: str) -> dict[str, Any]:
        if obj["metadata"]["name"] == bad:
            raise ValueError("not this one")
        return convert(obj, to)

    cluster.webhook.behaviour = converting(not_that_one)
    code, said, complaint = cluster.run("rollback")
    assert (code, complaint) == (0, "")
    assert "v1alpha is served" in said
    mended = eventually(
        lambda: cluster.rest.patch(f"{collection()}/{bad}", {"spec": {"requestedIPCount": 3}}),
        lambda got: got.code == 200,
    )
    assert mended.ok()["spec"]["requestedIPCount"] == 3


DOCS = Path(__file__).parents[2] / "docs" / "migration.md"


@pytest.mark.parametrize(
    "place", [pytest.param("real", marks=pytest.mark.real)], indirect=True, scope="module"
)
def test_the_documents_command_takes_our_finalizer_and_no_other(cluster: Cluster) -> None:
    assert isinstance(cluster.server, ControlPlane), "kubectl comes with it"
    cluster.plant(3)
    names, theirs = sorted(cluster.seen()), "example.com/theirs"
    for name, finalizers in zip(
        names, ([theirs, RELEASE_FINALIZER], [RELEASE_FINALIZER], [theirs]), strict=True
    ):
        patch = {"metadata": {"finalizers": finalizers}}
        cluster.rest.patch(f"{collection()}/{name}", patch).ok()
    (script,) = (
        each for each in re.findall(r"```\n(.*?)```", DOCS.read_text(), re.DOTALL) if "go-template" in each
    )
    assets = cluster.server.assets
    environment = {**os.environ, "KUBECONFIG": str(cluster.server.kubeconfig)}
    environment["PATH"] = f"{assets}:{environment['PATH']}"
    try:
        for _ in range(2):  # also a second time
            subprocess.run(["bash", "-euc", script], env=environment, check=True, timeout=60)
            found = [cluster.seen()[name]["metadata"].get("finalizers", []) for name in names]
            assert found == [[theirs], [], [theirs]]
    finally:
        for name in names:
            cluster.rest.patch(f"{collection()}/{name}", {"metadata": {"finalizers": None}})


def test_a_service_without_endpoints_is_no_webhook(cluster: Cluster) -> None:
    install(cluster.rest, field_crd())
    services = f"/api/v1/namespaces/{NAMESPACE}/services"
    port = {"port": 443, "protocol": "TCP"}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"ports": [port]}}
    cluster.rest.post(services, body)
    words = ("--webhook-service", f"{NAMESPACE}/hook", "--ca-file", str(cluster.ca_file))
    try:
        code, _, complaint = cluster.run(*words)
    finally:
        cluster.rest.delete(f"{services}/hook")
    assert (code, "the webhook does not convert" in complaint) == (1, True), complaint
    assert rules.standing(cluster.crd()).stage is rules.Stage.OLD_ONLY


def test_two_versions_without_a_conversion_are_a_danger_that_is_explained(cluster: Cluster) -> None:
    install(cluster.rest, field_crd())
    crd = rules.target(cluster.crd(), WebhookConversion(cluster.url))
    crd["spec"]["conversion"] = {"strategy": "None"}
    cluster.rest.put(CRD, crd).ok()
    before = cluster.crd()
    for words in (("--webhook-url", cluster.url, "--ca-file", str(cluster.ca_file)), ("status",)):
        code, _, complaint = cluster.run(*words)
        assert code == 1
        assert "migrate --repair" in complaint
    assert cluster.crd() == before
    assert cluster.migrate("--repair")[0] == 0
    assert rules.standing(cluster.crd()).stage is rules.Stage.CONVERTED


def test_a_crd_of_somebody_else_is_left_alone(cluster: Cluster) -> None:
    crd = field_crd()
    crd["spec"]["versions"].append(crd["spec"]["versions"][0] | {"name": "v2", "storage": False})
    install(cluster.rest, crd)
    for words in ((), ("rollback",), ("status",)):
        code, _, complaint = cluster.migrate(*words) if not words else cluster.run(*words)
        assert code == 1
        assert "v2" in complaint


def test_who_comes_between_is_not_overwritten(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    install(cluster.rest, field_crd())
    update, between = Client.update, [{"one": "1"}, {"two": "2"}]

    async def late(self: Client, obj: Any, **more: Any) -> Any:
        if between:
            patch = {"metadata": {"labels": between.pop(0)}}
            await asyncio.to_thread(lambda: cluster.rest.patch(CRD, patch).ok())
        return await update(self, obj, **more)

    monkeypatch.setattr(Client, "update", late)
    assert cluster.migrate()[0] == 0
    assert cluster.crd()["metadata"]["labels"] == {"one": "1", "two": "2"}
    assert rules.standing(cluster.crd()).stage is rules.Stage.CONVERTED


def test_status_says_where_it_stands(cluster: Cluster) -> None:
    cluster.plant(4)
    code, said, _ = cluster.run("status")
    assert (code, "v1alpha only" in said, "`subnetes migrate`" in said) == (0, True, True)
    cluster.migrate()
    code, said, _ = cluster.run("status")
    assert (code, "stored in   v1alpha, v1beta1" in said) == (0, True)
    assert "next        DNC-RC rewrites stored NNCs to v1beta1" in said
    cluster.rewrite()
    code, said, _ = cluster.run("status")
    assert (code, "done: 4 of 4 NNCs to v1beta1" in said, "by replica-1" in said) == (0, True, True)
    assert "stored in   v1beta1\n" in said
    cluster.webhook.behaviour = hangs_up
    code, said, complaint = cluster.run("status")
    assert (code, "the webhook does not convert" in complaint) == (1, True)
    assert "stored in   v1beta1\n" in said, "all the same"

"""The migration's rules: what a CRD's state means, what is to be written, where a rewriting goes on."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from subnetes.api import migration
from subnetes.api.conversion import convert
from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import ServiceReference
from subnetes.api.migration import Rewriting, Stage, differ, rewriting, rolled_back, standing, target
from subnetes.api.pruning import lost, pruned, version_schema
from subnetes.cli import migration_check, webhook_probe
from subnetes.cli.main import parser
from subnetes.cli.webhook_probe import NotConverting
from subnetes.controllers import migration_progress as progress
from subnetes.controllers.migration_progress import Progress
from subnetes.kube.client import Client
from subnetes.webhook.certificates import Holdings, Pair, kept, make_authority, make_leaf
from tests.harness.old_crds import field_crd
from tests.harness.old_nncs import field_nncs
from tests.harness.scripted import answer, failing, scripted

Crd = dict[str, Any]
WEBHOOK = WebhookConversion("https://127.0.0.1:1/convert", b"bundle")
SERVICE = WebhookConversion(ServiceReference(namespace="n", name="s", path="/convert"), b"bundle")


def old() -> Crd:
    crd = field_crd()
    crd["metadata"] |= {"uid": "u", "generation": 3, "resourceVersion": "7", "labels": {"theirs": "stays"}}
    return crd | {"status": {"storedVersions": ["v1alpha"]}}


def both(**changes: Any) -> Crd:
    crd = target(old(), WEBHOOK)
    crd["status"] = {"storedVersions": ["v1alpha", "v1beta1"]}
    crd["spec"] |= changes
    return crd


def new() -> Crd:
    crd = next(each for each in crds() if each["metadata"]["name"] == migration.NAME)
    return crd | {"status": {"storedVersions": ["v1beta1"]}}


NONE = {"conversion": {"strategy": "None"}}


def applied_over_old() -> Crd:
    """Our manifest, by somebody who did not know of the migration."""
    return old() | {"spec": new()["spec"], "status": {"storedVersions": ["v1alpha", "v1beta1"]}}


def with_version(name: str) -> Crd:
    crd = old()
    crd["spec"]["versions"].append(crd["spec"]["versions"][0] | {"name": name, "storage": False})
    return crd


def unserved() -> Crd:
    crd = old()
    crd["spec"]["versions"][0]["served"] = False
    return crd


def cluster_wide() -> Crd:
    crd = old()
    crd["spec"]["scope"] = "Cluster"
    return crd


def going() -> Crd:
    crd = old()
    crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return crd


@pytest.mark.parametrize(
    ("crd", "stage", "storage"),
    [
        (None, Stage.ABSENT, ""),
        (old(), Stage.OLD_ONLY, "v1alpha"),
        (both(), Stage.CONVERTED, "v1beta1"),
        (rolled_back(both()), Stage.CONVERTED, "v1alpha"),
        (new(), Stage.HUB_ONLY, "v1beta1"),
        (both(**NONE), Stage.RELABELLED, "v1beta1"),
        (rolled_back(both(**NONE)), Stage.RELABELLED, "v1alpha"),
        (applied_over_old(), Stage.RELABELLED, "v1beta1"),
        (with_version("v1"), Stage.UNKNOWN, "v1alpha"),
        (unserved(), Stage.UNKNOWN, "v1alpha"),
        (cluster_wide(), Stage.UNKNOWN, "v1alpha"),
        (going(), Stage.UNKNOWN, "v1alpha"),
    ],
)
def test_what_a_crd_says(crd: Crd | None, stage: Stage, storage: str) -> None:
    found = standing(crd)
    assert (found.stage, found.storage) == (stage, storage)
    assert bool(found.why) == (stage in (Stage.UNKNOWN, Stage.RELABELLED))


def test_the_one_update_brings_versions_storage_and_conversion_together() -> None:
    wanted = target(old(), WEBHOOK)
    versions = [(each["name"], each["served"], each["storage"]) for each in wanted["spec"]["versions"]]
    assert sorted(versions) == [("v1alpha", True, False), ("v1beta1", True, True)]
    assert wanted["spec"]["conversion"]["strategy"] == "Webhook"
    assert wanted["metadata"] == old()["metadata"], "the resourceVersion guards it, others' labels stay"


@pytest.mark.parametrize("conversion", [WEBHOOK, SERVICE])
def test_what_is_as_it_should_be_is_not_written(conversion: WebhookConversion) -> None:
    wanted = target(old(), conversion)
    again = target(wanted, conversion)
    assert differ(None, wanted)
    assert differ(old(), wanted)
    assert not differ(wanted, again)
    again["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["minimum"] = 0
    assert differ(wanted, again)
    assert differ(wanted, target(wanted, replace(conversion, ca_bundle=b"another")))


@pytest.mark.parametrize(
    ("crd", "to"),
    [
        (None, None),
        (old(), None),
        (new(), None),
        (both(), "v1beta1"),
        (rolled_back(both()), "v1alpha"),
        (both() | {"status": {"storedVersions": ["v1beta1"]}}, None),
        (rolled_back(both()) | {"status": {"storedVersions": ["v1alpha"]}}, None),
        (both(**NONE), None),
        (applied_over_old(), None),
    ],
)
def test_objects_are_rewritten_to_the_storage_version_and_only_through_a_conversion(
    crd: Crd | None, to: str | None
) -> None:
    assert rewriting(crd) == (None if to is None else Rewriting("u", 3, to))


WORK = Rewriting("u", 3, "v1beta1")
HALFWAY = Progress(
    str(WORK), "v1beta1", "one", 100.0, 200.0, state=progress.REWRITING, last="n/m", done=5, total=9
)


def test_progress_survives_in_a_config_map() -> None:
    made = progress.config_map(HALFWAY, "kube-system", None)
    assert (made.metadata.name, made.metadata.namespace) == (progress.CONFIG_MAP, "kube-system")
    assert progress.read(made) == HALFWAY
    made.metadata.resource_version = "5"
    again = progress.config_map(replace(HALFWAY, done=6), "kube-system", made)
    assert again.metadata.resource_version == "5"
    assert progress.read(again) == replace(HALFWAY, done=6)


@pytest.mark.parametrize("broken", [None, {}, {"done": "x"}])
def test_what_is_no_progress_is_none(broken: dict[str, str] | None) -> None:
    made = progress.config_map(HALFWAY, "kube-system", None)
    made.data = None if broken is None else {**(made.data or {}), **broken} if broken else {}
    assert progress.read(made) is None
    assert progress.read(None) is None


def test_the_same_work_goes_on_where_it_stopped() -> None:
    assert progress.resumed(HALFWAY, WORK, "two", 300.0) == replace(HALFWAY, by="two", written=300.0)
    assert progress.resumed(HALFWAY, WORK, "two", 50.0).begun == 50.0, "by a clock that is behind"


@pytest.mark.parametrize(
    "found",
    [
        None,
        replace(HALFWAY, work=str(replace(WORK, generation=4))),
        replace(HALFWAY, work=str(replace(WORK, uid="v"))),
        replace(HALFWAY, state=progress.DONE),
    ],
)
def test_other_work_begins_anew(found: Progress | None) -> None:
    assert progress.resumed(found, WORK, "two", 300.0) == progress.begin(WORK, "two", 300.0)


def test_where_one_was_refused_all_are_gone_through_again() -> None:
    found = progress.resumed(replace(HALFWAY, problem="for one a: no"), WORK, "two", 300.0)
    assert (found.last, found.done, found.problem, found.begun) == ("", 0, "", 100.0)
    assert found.state == progress.REWRITING


def test_what_remains_comes_in_the_order_of_its_names() -> None:
    keys = ["n/z", "n/a", "n-b/a", "n/m", "o/a", "n/n"]
    assert progress.remaining(HALFWAY, keys) == ["n/n", "n/z", "o/a"]
    assert progress.remaining(progress.begin(WORK, "x", 0.0), keys) == sorted(keys)


def ours() -> dict[str, Any]:
    return dict(version_schema(target(old(), WEBHOOK), "v1alpha"))


def with_fields(**fields: Any) -> Crd:
    crd = old()
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    containers = properties["status"]["properties"]["networkContainers"]
    containers["items"]["properties"] |= fields
    return crd


def test_our_v1alpha_has_all_that_the_field_has() -> None:
    assert list(lost(version_schema(old(), "v1alpha"), ours())) == []


TEXT = {"type": "string"}
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.parametrize(
    ("present", "wanted", "gone"),
    [
        ({"properties": {"a": TEXT}}, {"properties": {"a": TEXT}}, []),
        ({"properties": {"a": TEXT, "b": TEXT}}, {"properties": {"a": TEXT}}, ["b"]),
        ({"properties": {"a": {"properties": {"b": TEXT}}}}, {}, ["a"]),
        ({"properties": {"a": {"properties": {"b": TEXT}}}}, {"properties": {"a": {}}}, ["a.b"]),
        ({"properties": {"a": {"properties": {"b": TEXT}}}}, {"properties": {"a": ANY}}, []),
        ({"properties": {"a": ANY}}, {"properties": {"a": {"properties": {"b": TEXT}}}}, ["a.*"]),
        ({"properties": {"a": TEXT}}, ANY | {"properties": {"a": {}}}, []),
        (
            {"properties": {"a": {"properties": {"b": TEXT}}}},
            ANY | {"properties": {"a": {"properties": {}}}},
            ["a.b"],
        ),
        (
            {"properties": {"a": {"items": {"properties": {"b": TEXT}}}}},
            {"properties": {"a": {"items": {"properties": {}}}}},
            ["a[].b"],
        ),
        ({"properties": {"a": {"additionalProperties": TEXT}}}, {"properties": {"a": {}}}, ["a.*"]),
        (
            {"properties": {"a": {"additionalProperties": TEXT}}},
            {"properties": {"a": {"additionalProperties": TEXT}}},
            [],
        ),
        (
            {"properties": {"a": {"properties": {"b": TEXT}}}},
            {"properties": {"a": {"additionalProperties": TEXT}}},
            [],
        ),
        ({"properties": {"metadata": {"properties": {"name": TEXT}}, "kind": TEXT}}, {}, []),
        (
            {"properties": {"a": {"properties": {"metadata": TEXT}}}},
            {"properties": {"a": {}}},
            ["a.metadata"],
        ),
    ],
)
def test_what_another_schema_loses(present: Crd, wanted: Crd, gone: list[str]) -> None:
    assert list(lost(present, wanted)) == gone


@pytest.mark.parametrize(
    ("value", "schema", "gone"),
    [
        ({"apiVersion": "v", "kind": "k", "metadata": {"name": "n"}}, {}, []),
        ({"a": 1, "b": 2}, {"properties": {"a": {}}}, ["b"]),
        ({"a": {"b": 1}}, {"properties": {"a": ANY}}, []),
        ({"a": {"b": 1}}, ANY, []),
        ({"a": {"b": 1}}, ANY | {"properties": {"a": {}}}, ["a.b"]),
        ({"a": [{"b": 1}, {"c": 1}]}, {"properties": {"a": {"items": {"properties": {"b": {}}}}}}, ["a[].c"]),
        ({"a": [{"b": 1}]}, {"properties": {"a": ANY}}, []),
        ({"a": {"x": {"b": 1}}}, {"properties": {"a": {"additionalProperties": {}}}}, ["a.x.b"]),
        ({"a": {"metadata": 1}}, {"properties": {"a": {}}}, ["a.metadata"]),
        (
            {"a": {"metadata": 1, "b": 2}},
            {"properties": {"a": {"x-kubernetes-embedded-resource": True}}},
            ["a.b"],
        ),
    ],
)
def test_what_an_api_server_prunes(value: Crd, schema: Crd, gone: list[str]) -> None:
    assert list(pruned(value, schema)) == gone


def test_a_crd_may_keep_whatever_there_is() -> None:
    crd = old()
    crd["spec"]["preserveUnknownFields"] = True
    assert list(lost(version_schema(crd, "v1alpha"), ours())) == ["*"]
    assert list(pruned({"anything": 1}, version_schema(crd, "v1alpha"))) == []


def nnc(name: str, **parts: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n"}, **parts}


def test_the_nncs_of_the_field_can_all_be_migrated() -> None:
    items = [each.document | {"status": each.status or {}} for each in field_nncs(34)]
    found = migration_check.findings(items, ours())
    assert (found.count, found.refused, dict(found.users)) == (34, {}, {})


def test_an_nnc_that_cannot_be_converted_or_would_lose_something_is_found() -> None:
    items = [
        nnc("fine", spec={"requestedIPCount": 1}),
        nnc("bad", spec={"availabilityZone": "one"}),
        nnc("rich", status={"networkContainers": [{"id": "a", "hostMode": "x"}, {"hostMode": "y"}]}),
        nnc("odd", metadata={"name": "odd", "namespace": "n", "annotations": {"a": 1}}),
    ]
    found = migration_check.findings(items, ours())
    assert sorted(found.refused) == ["n/bad", "n/odd"]
    assert "spec.availabilityZone" in found.refused["n/bad"]
    assert dict(found.users) == {"status.networkContainers[].hostMode": ["n/rich"]}


def test_of_many_the_first_few_are_named_and_the_rest_counted() -> None:
    assert migration_check.shown(["a", "b"]) == "a; b"
    assert migration_check.shown([*"abcdefg"]) == "a; b; c; d; e; and 2 more"


NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def secret(**changes: bytes) -> dict[str, bytes]:
    authority = make_authority(NOW, 10 * DAY)
    return kept(Holdings((authority,), make_leaf(authority, ["hook.n.svc", "127.0.0.1"], NOW, DAY))) | changes


def of_a_stranger() -> dict[str, bytes]:
    stranger = make_authority(NOW, 10 * DAY)
    leaf: Pair = make_leaf(stranger, ["hook.n.svc"], NOW, DAY)
    return secret() | {"tls.crt": leaf.certificate, "tls.key": leaf.key}


def test_a_certificate_that_the_api_server_will_trust_passes() -> None:
    webhook_probe.check_certificate(secret(), "hook.n.svc", NOW)


@pytest.mark.parametrize(
    ("data", "host", "now", "said"),
    [
        (of_a_stranger(), "hook.n.svc", NOW, "signed by no authority of ca.crt"),
        (secret(), "other.n.svc", NOW, "not for other.n.svc, only for hook.n.svc"),
        (secret(), "hook.n.svc", NOW + 2 * DAY, "expired at 2026-01-02"),
        (secret(**{"tls.crt": b"garbage"}), "hook.n.svc", NOW, "cannot be read"),
        ({"ca.crt": secret()["ca.crt"]}, "hook.n.svc", NOW, "cannot be read"),
    ],
    ids=["stranger", "host", "expired", "garbage", "missing"],
)
def test_a_certificate_that_it_will_not_trust_is_found_out(
    data: dict[str, bytes], host: str, now: datetime, said: str
) -> None:
    with pytest.raises(NotConverting, match=said):
        webhook_probe.check_certificate(data, host, now)


Convert = Callable[[dict[str, Any], str], dict[str, Any]]


def asked(convert: Convert, **response: Any) -> None:
    async def ask(body: bytes) -> bytes:
        request = json.loads(body)["request"]
        made = [convert(each, request["desiredAPIVersion"]) for each in request["objects"]]
        said = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made}
        return json.dumps({"response": said | response}).encode()

    asyncio.run(webhook_probe._converts(ask))


def test_our_conversion_passes_the_probe() -> None:
    asked(convert)


def relabelled(obj: dict[str, Any], to: str) -> dict[str, Any]:
    return obj | {"apiVersion": to}


def forgetful(obj: dict[str, Any], to: str) -> dict[str, Any]:
    made = convert(obj, to)
    return made if to.endswith("v1beta1") else made | {"status": {}}


def renamed(obj: dict[str, Any], to: str) -> dict[str, Any]:
    made = convert(obj, to)
    return made | {"metadata": made["metadata"] | {"name": "other"}}


@pytest.mark.parametrize(
    ("broken", "response", "said"),
    [
        (relabelled, {}, "it made"),
        (forgetful, {}, "status is not what it was"),
        (renamed, {}, "another object"),
        (lambda obj, _to: obj, {}, "another object"),
        (convert, {"uid": "other"}, "another review"),
        (convert, {"result": {"status": "Failure", "message": "not today"}}, "not today"),
        (convert, {"convertedObjects": []}, "no ConversionReview"),
        (convert, {"result": None}, "no ConversionReview"),
    ],
)
def test_a_webhook_that_does_not_convert_is_found_out(
    broken: Convert, response: dict[str, Any], said: str
) -> None:
    with pytest.raises(NotConverting, match=said):
        asked(broken, **response)


async def converting(request: web.Request) -> web.Response:
    """The webhook, behind the API server's proxy."""
    asked = (await request.json())["request"]
    made = [convert(each, asked["desiredAPIVersion"]) for each in asked["objects"]]
    said = {"uid": asked["uid"], "result": {"status": "Success"}, "convertedObjects": made}
    return web.json_response({"response": said})


async def test_a_service_is_asked_through_the_api_servers_proxy() -> None:
    async with scripted(converting) as server, Client(server.credentials()) as client:
        assert "through the API server's proxy" in await webhook_probe.probe(client, SERVICE)
        assert {(each.method, each.path) for each in server.requests} == {
            ("POST", "/api/v1/namespaces/n/services/https:s:443/proxy/convert")
        }


@pytest.mark.parametrize(
    ("ends", "fine"),
    [
        ([{"conditions": {"ready": True}}], True),
        ([{"conditions": {"ready": False}}, {}], True),
        ([{"conditions": {"ready": False}}], False),
        ([], False),
    ],
)
async def test_where_the_proxy_is_forbidden_an_endpoint_must_be_ready(
    ends: list[dict[str, Any]], fine: bool
) -> None:
    slices = {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}, "endpoints": ends}]}
    handlers = failing(403, "Forbidden"), answer(200, slices)
    async with scripted(*handlers) as server, Client(server.credentials()) as client:
        if fine:
            assert "not asked" in await webhook_probe.probe(client, SERVICE)
        else:
            with pytest.raises(NotConverting, match="no ready endpoint"):
                await webhook_probe.probe(client, SERVICE)
        assert server.requests[-1].query["labelSelector"] == "kubernetes.io/service-name=s"


async def test_a_service_that_does_not_answer_is_no_webhook() -> None:
    nobody = failing(503, "ServiceUnavailable", "no endpoints available")
    async with scripted(nobody) as server, Client(server.credentials()) as client:
        with pytest.raises(NotConverting, match="no endpoints available"):
            await webhook_probe.probe(client, SERVICE)


@pytest.mark.parametrize(
    "words",
    [
        ["--webhook-url", "http://x/convert"],
        ["--webhook-service", "name"],
        ["--webhook-service", "n/s:0"],
        ["--webhook-service", "n/s:99999"],
        ["--webhook-url", "https://x/convert", "--webhook-service", "n/s"],
        ["sideways"],
    ],
)
def test_wrong_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser(["migrate"]).parse_args(["migrate", *words])
    assert "error:" in capsys.readouterr().err


def test_a_service_is_named_in_one_word() -> None:
    options = parser(["migrate"]).parse_args(["migrate", "--webhook-service", "kube-system/hook:8443"])
    wanted = ServiceReference(namespace="kube-system", name="hook", port=8443, path="/convert")
    assert options.webhook_service == wanted

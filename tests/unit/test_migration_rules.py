"""The migration's rules: what a CRD's state means, what is to be written, where a rewriting goes on."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from subnetes.api import migration
from subnetes.api.conversion import convert
from subnetes.api.crd import WebhookConversion, crds
from subnetes.api.customresourcedefinition import ServiceReference
from subnetes.api.migration import Rewriting, Stage, differ, rewriting, rolled_back, standing, target
from subnetes.cli import webhook_probe
from subnetes.cli.main import parser
from subnetes.cli.webhook_probe import NotConverting
from subnetes.controllers import migration_progress as progress
from subnetes.controllers.migration_progress import Progress
from subnetes.kube.client import Client
from tests.harness.old_crds import field_crd
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


def test_what_remains_comes_in_the_order_of_its_names() -> None:
    keys = ["n/z", "n/a", "n-b/a", "n/m", "o/a", "n/n"]
    assert progress.remaining(HALFWAY, keys) == ["n/n", "n/z", "o/a"]
    assert progress.remaining(progress.begin(WORK, "x", 0.0), keys) == sorted(keys)


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

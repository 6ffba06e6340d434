"""Where the embedded server differs from the real one on purpose: both sides asserted, here and nowhere else.

docs/embedded-api-server.md tells the same list with the reasons. A difference that disappears fails its test,
so the list cannot grow stale.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.harness.kubectl import Pair
from tests.harness.rest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Answer, eventually
from tests.harness.twins import Twins
from tests.harness.widgets import CRDS, GROUP, collection, crd, install, uninstall, version, widget

PROTOBUF = "application/vnd.kubernetes.protobuf"
YAML = "application/yaml"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
STRING: dict[str, Any] = {"type": "string"}
Install = Callable[[dict[str, Any]], str]
DOCUMENT = Path(__file__).parents[2] / "docs" / "embedded-api-server.md"


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


class Sides:
    """The answers to one request, and what they must be."""

    def __init__(self, twins: Twins, method: str, path: str, body: Any = None, **options: Any) -> None:
        self.embedded: Answer = twins.embedded.request(method, path, body, **options)
        self.real: Answer = twins.real.request(method, path, body, **options)

    def codes(self) -> tuple[int, int]:
        return self.embedded.code, self.real.code


def test_server_side_apply_is_left_out(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/configmaps"
    twins.do("POST", path, config_map("c"))
    options: dict[str, Any] = {"content_type": APPLY, "fieldManager": "me", "force": True}
    sides = Sides(twins, "PATCH", f"{path}/c", config_map("c"), **options)
    assert sides.codes() == (415, 200)
    said = sides.embedded.failed(415, "UnsupportedMediaType")["message"]
    assert "server-side apply is not offered" in said


@pytest.mark.parametrize("change", [{"secrets": [{"name": "s"}]}, {"metadata": {"$patch": "replace"}}])
def test_strategic_merge_of_lists_and_directives_is_left_out(twins: Twins, change: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/serviceaccounts"
    twins.do("POST", path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}})
    embedded = twins.embedded.patch(f"{path}/s", change, STRATEGIC)
    said = embedded.failed(415, "UnsupportedMediaType")["message"]
    assert "strategic merge patch of lists is not offered" in said
    assert twins.real.patch(f"{path}/s", change, STRATEGIC).code != 415


def test_field_owners_are_not_recorded(twins: Twins) -> None:
    sides = Sides(twins, "POST", twins.widgets, widget("a"))
    assert "managedFields" not in sides.embedded.ok()["metadata"]
    assert "managedFields" in sides.real.ok()["metadata"]


def test_anonymous_requests_are_unauthorized_instead_of_forbidden(twins: Twins) -> None:
    assert [rest.as_user(None).get(twins.widgets).code for rest in (twins.embedded, twins.real)] == [401, 403]


def test_everyone_with_a_token_may_do_everything(twins: Twins) -> None:
    """The real server asks RBAC; the embedded one serves neither RBAC nor access reviews."""
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert Sides(twins, "POST", path, review | {"spec": spec}).codes() == (404, 201)
    assert Sides(twins, "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles").codes() == (404, 200)
    assert twins.real.as_user("alice").get(twins.widgets).code == 403


def test_answers_are_json_only(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/configmaps"
    twins.do("POST", path, config_map("c"))
    for media in (PROTOBUF, YAML):
        assert Sides(twins, "GET", f"{path}/c", accept=media).codes() == (406, 200)
    both = Sides(twins, "GET", f"{path}/c", accept=f"{PROTOBUF},application/json")
    assert both.embedded.headers["content-type"] == "application/json"
    assert both.real.headers["content-type"] == PROTOBUF


def test_protobuf_bodies_are_not_read_so_kubectl_create_configmap_fails(kubectl: Pair) -> None:
    create = ("--namespace", kubectl.namespace, "create", "configmap", "c", "--from-literal=k=v")
    assert kubectl.real.run(*create).code == 0
    refused = kubectl.embedded.run(*create)
    assert refused.code == 1
    assert "unknown format" in refused.stderr
    manifest = kubectl.embedded.run(*create, "--dry-run=client", "-o", "yaml").stdout
    applied = kubectl.embedded.run("--namespace", kubectl.namespace, "apply", "-f", "-", stdin=manifest)
    assert applied.stdout == "configmap/c created\n"


def test_yaml_bodies_are_not_read(twins: Twins) -> None:
    body = f"apiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {{name: a}}\n".encode()
    assert Sides(twins, "POST", twins.widgets, body, content_type=YAML).codes() == (415, 201)


def test_metadata_alone_is_not_served(twins: Twins) -> None:
    media = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    assert Sides(twins, "GET", twins.widgets, accept=media).codes() == (406, 200)
    both = Sides(twins, "GET", twins.widgets, accept=f"{media},application/json")
    assert (both.embedded.ok()["kind"], both.real.ok()["kind"]) == ("WidgetList", "PartialObjectMetadataList")


def test_nothing_is_warned_of(twins: Twins) -> None:
    """Unknown fields, fields given twice (which Strict refuses, on the real side), finalizers of nobody."""
    twice = json.dumps(widget("a", {"size": 4})).replace('"size": 4', '"size": 4, "size": 5').encode()
    for body in (widget("a", {"nope": 1}), twice, widget("a", finalizers=["plain"])):
        sides = Sides(twins, "POST", twins.widgets, body, fieldValidation="Warn", dryRun="All")
        assert sides.codes() == (201, 201)
        assert (len(sides.embedded.warnings), len(sides.real.warnings)) == (0, 1)
    assert Sides(twins, "POST", twins.widgets, twice, fieldValidation="Strict").codes() == (201, 400)
    assert twins.embedded.get(f"{twins.widgets}/a").ok()["spec"]["size"] == 5


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
def test_dependents_are_deleted_in_the_background_only(twins: Twins, policy: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    sides = Sides(twins, "DELETE", f"{twins.widgets}/a", {"propagationPolicy": policy})
    assert sides.codes() == (422, 200)
    assert "propagationPolicy" in sides.embedded.failed(422, "Invalid")["message"]


def test_a_deletion_that_is_done_answers_with_a_status(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/serviceaccounts"
    twins.do("POST", path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}})
    sides = Sides(twins, "DELETE", f"{path}/s")
    assert (sides.embedded.ok()["kind"], sides.real.ok()["kind"]) == ("Status", "ServiceAccount")


def test_crds_are_checked_less(twins: Twins, gap: Install) -> None:
    """A schema need not be structural, and of the names only the kind is compared: at once, with a 422."""
    loose = crd("Loose", [version("v1", _limited(x={"minimum": 1}))])
    assert Sides(twins, "POST", CRDS, loose, dryRun="All").codes() == (201, 422)
    gap(_limited(a=STRING))
    taken = crd("Gap", [version("v1", _limited(a=STRING))])
    taken["spec"]["names"]["plural"] = "others"
    taken["metadata"]["name"] = f"others.{GROUP}"
    sides = Sides(twins, "POST", CRDS, taken, dryRun="All")
    assert sides.codes() == (422, 201)
    assert sides.embedded.failed(422, "Invalid")["details"]["causes"][0]["field"] == "spec.names.kind"


OTHER_WORDS: dict[str, dict[str, Any]] = {
    "query": {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
    "limit": {"limit": "many"},
    "accept": {"accept": "text/html"},
}


@pytest.mark.parametrize("options", OTHER_WORDS.values(), ids=OTHER_WORDS)
def test_requests_are_refused_in_other_words(twins: Twins, options: dict[str, Any]) -> None:
    twins.alike(lambda rest: rest.get(twins.widgets, **options))
    sides = Sides(twins, "GET", twins.widgets, **options)
    assert sides.embedded.json["message"] != sides.real.json["message"]


ODD: dict[str, tuple[str, str, Any, dict[str, Any], tuple[int, int]]] = {
    "put-of-words": ("PUT", "/a", widget("a", resourceVersion="words"), {}, (409, 500)),
    "watch-of-words": ("GET", "", None, {"watch": "true", "resourceVersion": "words"}, (400, 500)),
    "initial-events": ("GET", "", None, {"watch": "true", "sendInitialEvents": "true"}, (200, 422)),
    "watch-exact": ("GET", "", None, {"watch": "true", "resourceVersionMatch": "Exact"}, (200, 422)),
    "put-collection": ("PUT", "", widget("a"), {}, (405, 400)),
    "annotations": ("POST", "", widget("b", annotations={"x": "y" * 262144}), {}, (201, 422)),
}


@pytest.mark.parametrize(("method", "suffix", "body", "query", "codes"), ODD.values(), ids=ODD)
def test_odd_requests_have_other_codes(
    twins: Twins, method: str, suffix: str, body: Any, query: dict[str, Any], codes: tuple[int, int]
) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    timeout = {"timeoutSeconds": 1} if "watch" in query else {}
    assert Sides(twins, method, twins.widgets + suffix, body, **query, **timeout).codes() == codes


def test_core_kinds_are_not_validated(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/pods"
    assert Sides(twins, "POST", path, pod("a")).codes() == (201, 422)
    container = {"name": "c", "image": "i"}
    unknown = pod("b", containers=[container], nope=1)
    assert Sides(twins, "POST", path, unknown, fieldValidation="Strict").codes() == (201, 400)
    twins.do("POST", path, pod("c", containers=[container], nodeName="n1"))
    moved = {"spec": {"nodeName": "n2"}}
    assert Sides(twins, "PATCH", f"{path}/c", moved, content_type=MERGE).codes() == (200, 422)


def test_core_kinds_get_few_defaults(twins: Twins) -> None:
    path = f"/api/v1/namespaces/{twins.namespace}/pods"
    sides = Sides(twins, "POST", path, pod("a", containers=[{"name": "c", "image": "i"}]))
    assert "imagePullPolicy" not in sides.embedded.ok()["spec"]["containers"][0]
    assert "imagePullPolicy" in sides.real.ok()["spec"]["containers"][0]


@pytest.mark.parametrize(
    "path", ["/apis/apps/v1/deployments", "/apis/batch/v1/jobs", "/api/v1/services", "/"]
)
def test_what_we_do_not_need_is_not_served(twins: Twins, path: str) -> None:
    assert Sides(twins, "GET", path).codes() == (404, 200)


def test_the_old_watch_paths_are_not_served(twins: Twins) -> None:
    path = twins.widgets.replace("/v1/namespaces/", "/v1/watch/namespaces/")
    assert Sides(twins, "GET", path, timeoutSeconds=1).codes() == (404, 200)


def test_the_words_of_the_json_parser_are_its_own(twins: Twins) -> None:
    sides = Sides(twins, "POST", twins.widgets, b"{")
    assert sides.codes() == (400, 400)
    assert sides.embedded.json["reason"] == sides.real.json["reason"] == "BadRequest"
    assert sides.embedded.json["message"] != sides.real.json["message"]


def test_descriptions_that_are_kubernetes_own_texts_are_not_repeated(kubectl: Pair, twins: Twins) -> None:
    explained = [
        each.run("explain", "widget.metadata.name").stdout for each in (kubectl.embedded, kubectl.real)
    ]
    assert explained[0] != explained[1]
    assert "<string>" in explained[0]


def test_the_version_says_that_it_is_not_the_real_one(twins: Twins) -> None:
    versions = [rest.get("/version").ok()["gitVersion"] for rest in (twins.embedded, twins.real)]
    assert versions == ["v1.36.3+subnetes", "v1.36.3"]


def test_core_kinds_show_fewer_columns(kubectl: Pair) -> None:
    kubectl.same("create", "-f", "-", stdin=json.dumps(config_map("c")))
    get = ("--namespace", kubectl.namespace, "get", "configmap", "c")
    heads = [each.run(*get).stdout.split() for each in (kubectl.embedded, kubectl.real)]
    assert (heads[0][:3], heads[1][:4]) == (["NAME", "AGE", "c"], ["NAME", "DATA", "AGE", "c"])


def test_discovery_is_not_aggregated(twins: Twins) -> None:
    sides = Sides(twins, "GET", "/apis", accept=f"{AGGREGATED},application/json")
    assert sides.embedded.ok()["kind"] == "APIGroupList"
    assert sides.real.ok()["kind"] == "APIGroupDiscoveryList"


def test_label_selectors_do_not_compare_numbers(twins: Twins) -> None:
    assert Sides(twins, "GET", twins.widgets, labelSelector="tier>1").codes() == (400, 200)


@pytest.mark.parametrize("selector", ["a=(b", "a b", "a in b", "a in (b", ",a", "a>b"])
def test_what_is_no_label_selector_is_refused_in_other_words(twins: Twins, selector: str) -> None:
    sides = Sides(twins, "GET", twins.widgets, labelSelector=selector)
    messages = [each.failed(400, "BadRequest")["message"] for each in (sides.embedded, sides.real)]
    assert messages[0] != messages[1]
    assert messages[0].startswith(f"unable to parse requirement: found '{selector}', expected: key")


@pytest.mark.parametrize(
    "op",
    [
        {"op": "remove", "path": "/spec/tags/-1"},
        {"op": "replace", "path": "/spec/label", "value": "abc"},
        {"op": "add", "path": "/spec/maybe"},
        {"op": "test", "path": "/spec/label", "value": None},
    ],
    ids=lambda op: op["op"],
)
def test_json_patch_is_as_strict_as_its_rfc(twins: Twins, op: dict[str, Any]) -> None:
    twins.do("POST", twins.widgets, widget("a", {"tags": ["x", "y"]}))
    assert Sides(twins, "PATCH", f"{twins.widgets}/a", [op], content_type=JSON_PATCH).codes() == (422, 200)


def test_what_is_no_patch_is_refused_in_other_words(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    sides = Sides(twins, "PATCH", f"{twins.widgets}/a", b"[1]", content_type=MERGE)
    messages = [each.failed(400, "BadRequest")["message"] for each in (sides.embedded, sides.real)]
    assert messages[0] == "error decoding patch: it must be an object"
    assert "cannot unmarshal array" in messages[1]


def test_messages_about_status_name_the_whole_path(twins: Twins) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    wrong = {"status": {"count": "x"}}
    sides = Sides(twins, "PATCH", f"{twins.widgets}/a/status", wrong, content_type=MERGE)
    causes = [each.failed(422, "Invalid")["details"]["causes"][0] for each in (sides.embedded, sides.real)]
    assert causes[0]["field"] == causes[1]["field"] == "status.count"
    assert "status.count in body must be" in causes[0]["message"]
    assert "count in body must be" in causes[1]["message"]
    assert causes[0] != causes[1]


def _rule(text: str, **more: Any) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": text} | more]}


def _limited(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


GAPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "oneOf": (_limited(a=STRING) | {"oneOf": [{"required": ["a"]}]}, {}),
    "anyOf": (_limited(a=STRING) | {"anyOf": [{"required": ["a"]}]}, {}),
    "allOf": (_limited(a=STRING) | {"allOf": [{"required": ["a"]}]}, {}),
    "not": (_limited(a=STRING) | {"not": {"required": ["a"]}}, {"a": "x"}),
    "multipleOf": (_limited(a={"type": "integer", "multipleOf": 2}), {"a": 3}),
    "minProperties": (_limited(a=STRING) | {"minProperties": 1}, {}),
    "format": (_limited(a=STRING | {"format": "uuid"}), {"a": "x"}),
    "pattern": (_limited(a=STRING | {"pattern": "^[[:alpha:]]$"}), {"a": "1"}),
    "function": (_limited(a=STRING | {"maxLength": 9} | _rule("quantity(self).isInteger()")), {"a": "1.5"}),
}


@pytest.fixture
def gap(twins: Twins) -> Iterator[Install]:
    """Installs the kind Gap with this spec on both servers and answers where its objects are."""

    def install_on_both(spec: dict[str, Any]) -> str:
        for rest in (twins.embedded, twins.real):
            install(rest, crd("Gap", [version("v1", spec)]))
        return collection(twins.namespace, "gaps")

    yield install_on_both
    for rest in (twins.embedded, twins.real):
        uninstall(rest, f"gaps.{GROUP}")


def _gap(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gap", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(("schema", "spec"), GAPS.values(), ids=GAPS)
def test_schema_keywords_that_our_kinds_do_not_use_are_not_enforced(
    twins: Twins, gap: Install, schema: dict[str, Any], spec: dict[str, Any]
) -> None:
    assert Sides(twins, "POST", gap(schema), _gap(spec)).codes() == (201, 422)


def test_a_rule_has_no_message_of_its_own_making(twins: Twins, gap: Install) -> None:
    path = gap(_limited(a={"type": "integer"} | _rule("self > 1", messageExpression="'made of ' + 'parts'")))
    sides = Sides(twins, "POST", path, _gap({"a": 1}))
    messages = [each.failed(422, "Invalid")["message"] for each in (sides.embedded, sides.real)]
    assert ["made of parts" in message for message in messages] == [False, True]
    assert "failed rule: self > 1" in messages[0]


def test_old_objects_must_fit_a_tightened_schema_when_they_are_written(twins: Twins, gap: Install) -> None:
    path = gap(_limited(a=STRING, b=STRING))
    twins.do("POST", path, _gap({"a": "long"}))
    new = _gap({"a": "long"}) | {"metadata": {"generateName": "x"}}
    strict = crd("Gap", [version("v1", _limited(a=STRING | {"maxLength": 1}, b=STRING))])
    for rest in (twins.embedded, twins.real):
        found = rest.get(f"{CRDS}/gaps.{GROUP}").ok()
        rest.put(f"{CRDS}/gaps.{GROUP}", found | {"spec": strict["spec"]}).ok()
        eventually(partial(rest.post, path, new, dryRun="All"), lambda answer: answer.code == 422)
    change = {"spec": {"b": "x"}}
    assert Sides(twins, "PATCH", f"{path}/a", change, content_type=MERGE).codes() == (422, 200)


def test_only_requests_are_counted(twins: Twins) -> None:
    said = [
        set(re.findall(r"^# TYPE (\S+)", rest.get("/metrics").body.decode(), re.MULTILINE))
        for rest in (twins.embedded, twins.real)
    ]
    assert said[0] == {"apiserver_request_total"}
    assert {"apiserver_request_total", "apiserver_request_duration_seconds"} <= said[1]


def test_every_difference_is_documented() -> None:
    """One row a test: the table names the test that proves it."""
    proven = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text()))
    here = set(re.findall(r"^def (test_\w+)", Path(__file__).read_text(), re.MULTILINE))
    assert proven == here - {"test_every_difference_is_documented"}

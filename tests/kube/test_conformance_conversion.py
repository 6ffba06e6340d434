"""Several versions of one custom resource, converted by a webhook that works, fails, hangs up and cheats."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import webhook as hooks
from tests.harness.rest import JSON_PATCH, Rest
from tests.harness.webhook import ConversionWebhook
from tests.harness.widgets import crd, install, uninstall, version

GROUP = "conversion.subnetes.io"
OLD = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 0}}}
NEW = {
    "type": "object",
    "properties": {
        "counts": {"type": "array", "items": {"type": "integer"}},
        "mode": {"type": "string", "default": "m"},
    },
}


def convert(obj: dict[str, Any], desired: str) -> dict[str, Any]:
    """v1: `count`, the sum of v2's `counts`; v2's whole spec travels in an annotation."""
    spec, meta = obj.get("spec", {}), obj["metadata"]
    notes = meta.pop("annotations", {})
    if desired.endswith("/v1") and "counts" in spec:
        notes["carried"] = json.dumps(spec)
        obj["spec"] = {"count": sum(spec["counts"])}
    elif desired.endswith("/v2") and "count" in spec:
        carried = json.loads(notes.pop("carried", "{}"))
        obj["spec"] = (
            carried if sum(carried.get("counts", [])) == spec["count"] else {"counts": [spec["count"]]}
        )
    return obj | {"apiVersion": desired, "metadata": meta | ({"annotations": notes} if notes else {})}


HEALTHY = hooks.converting(convert)


@pytest.fixture(scope="module")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversionWebhook]:
    with ConversionWebhook(tmp_path_factory.mktemp("webhook"), HEALTHY) as running:
        yield running


def gadget_crd(webhook: ConversionWebhook, group: str = GROUP) -> dict[str, Any]:
    versions = [version("v1", OLD, storage=False), version("v2", NEW)]
    return crd("Gadget", versions, group=group, conversion=webhook.crd_conversion())


@pytest.fixture
def gadgets(rest: Rest, namespace: str, webhook: ConversionWebhook) -> Iterator[dict[str, str]]:
    """The collection's path in each version; the webhook is healthy at the start and at the end."""
    install(rest, gadget_crd(webhook))
    webhook.behaviour = HEALTHY
    paths = {v: f"/apis/{GROUP}/{v}/namespaces/{namespace}/gadgets" for v in ("v1", "v2")}
    yield paths
    webhook.behaviour = HEALTHY
    rest.delete(paths["v2"]).ok()


def gadget(name: str, v: str, spec: dict[str, Any], group: str = GROUP) -> dict[str, Any]:
    return {"apiVersion": f"{group}/{v}", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def test_a_write_in_one_version_is_read_in_the_other(rest: Rest, gadgets: dict[str, str]) -> None:
    made = rest.post(gadgets["v1"], gadget("a", "v1", {"count": 5})).ok()
    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v1", {"count": 5})
    new = rest.get(f"{gadgets['v2']}/a").ok()
    assert (new["apiVersion"], new["spec"]) == (f"{GROUP}/v2", {"counts": [5], "mode": "m"})
    assert new["metadata"]["uid"] == made["metadata"]["uid"]
    assert new["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    rest.patch(f"{gadgets['v2']}/a", {"spec": {"counts": [5, 6]}}).ok()
    old = rest.get(f"{gadgets['v1']}/a").ok()
    assert old["spec"] == {"count": 11}
    assert json.loads(old["metadata"]["annotations"]["carried"]) == {"counts": [5, 6], "mode": "m"}


def test_lists_and_watches_are_converted(rest: Rest, gadgets: dict[str, str]) -> None:
    for number in (1, 2):
        rest.post(gadgets["v2"], gadget(f"g{number}", "v2", {"counts": [number, 1]})).ok()
    listed = rest.get(gadgets["v1"]).ok()
    assert listed["apiVersion"] == f"{GROUP}/v1"
    assert [(i["apiVersion"], i["spec"]) for i in listed["items"]] == [
        (f"{GROUP}/v1", {"count": 2}),
        (f"{GROUP}/v1", {"count": 3}),
    ]
    with rest.watch(gadgets["v1"], resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
        rest.patch(f"{gadgets['v2']}/g1", {"spec": {"counts": [9]}}).ok()
        rest.delete(f"{gadgets['v2']}/g1").ok()
        events = [watch.next() for _ in range(2)]
    assert [(e["type"], e["object"]["apiVersion"], e["object"]["spec"]) for e in events] == [
        ("MODIFIED", f"{GROUP}/v1", {"count": 9}),
        ("DELETED", f"{GROUP}/v1", {"count": 9}),
    ]


def test_each_version_is_validated_and_pruned_by_its_own_schema(rest: Rest, gadgets: dict[str, str]) -> None:
    rest.post(gadgets["v1"], gadget("a", "v1", {"count": -1})).failed(422, "Invalid")
    made = rest.post(gadgets["v1"], gadget("a", "v1", {"count": 1, "counts": [4]})).ok()
    assert made["spec"] == {"count": 1}
    rest.post(gadgets["v2"], gadget("b", "v1", {"count": 1})).failed(400, "BadRequest")


def test_a_patch_is_applied_in_its_own_version(rest: Rest, gadgets: dict[str, str]) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1, 2]})).ok()
    same = rest.patch(f"{gadgets['v1']}/a", {"metadata": {"labels": {"x": "y"}}}).ok()
    assert same["spec"] == {"count": 3}
    assert rest.get(f"{gadgets['v2']}/a").ok()["spec"]["counts"] == [1, 2]
    operations = [
        {"op": "test", "path": "/spec/count", "value": 3},
        {"op": "replace", "path": "/spec/count", "value": 7},
    ]
    rest.patch(f"{gadgets['v1']}/a", operations, JSON_PATCH).ok()
    assert rest.get(f"{gadgets['v2']}/a").ok()["spec"]["counts"] == [7]


def test_status_is_written_through_any_version(rest: Rest, gadgets: dict[str, str]) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    written = rest.patch(f"{gadgets['v1']}/a/status", {"status": {"count": 4}}).ok()
    assert (written["apiVersion"], written["status"]) == (f"{GROUP}/v1", {"count": 4})
    assert rest.get(f"{gadgets['v2']}/a").ok()["status"] == {"count": 4}


def test_an_unchanged_write_in_the_other_version_changes_nothing(rest: Rest, gadgets: dict[str, str]) -> None:
    made = rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1, 2]})).ok()
    old = rest.get(f"{gadgets['v1']}/a").ok()
    assert rest.put(f"{gadgets['v1']}/a", old).ok()["metadata"] == old["metadata"]
    assert (
        rest.get(f"{gadgets['v2']}/a").ok()["metadata"]["resourceVersion"]
        == made["metadata"]["resourceVersion"]
    )


def test_the_review_says_what_is_wanted(
    rest: Rest, gadgets: dict[str, str], webhook: ConversionWebhook
) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    webhook.reviews.clear()
    rest.get(f"{gadgets['v1']}/a").ok()
    wanted = f"{GROUP}/v1"
    review = next(each for each in webhook.reviews if each["request"]["desiredAPIVersion"] == wanted)
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert set(review["request"]) == {"uid", "desiredAPIVersion", "objects"}
    assert [each["apiVersion"] for each in review["request"]["objects"]] == [f"{GROUP}/v2"]


def _changed(**change: Any) -> hooks.Behaviour:
    def tamper(obj: dict[str, Any], desired: str) -> dict[str, Any]:
        done = convert(obj, desired)
        return done | {"metadata": done["metadata"] | change}

    return hooks.converting(tamper)


def _with(**change: Any) -> hooks.Behaviour:
    return hooks.converting(lambda obj, desired: convert(obj, desired) | change)


BROKEN: dict[str, hooks.Behaviour] = {
    "hangs-up": lambda _: None,
    "garbage": lambda _: b"this is not JSON",
    "empty": lambda _: b"",
    "refuses": hooks.refusing("not today"),
    "wrong-uid": lambda review: hooks.answer(review, uid="another"),
    "no-response": lambda review: {"apiVersion": review["apiVersion"], "kind": "ConversionReview"},
    "wrong-kind": lambda review: hooks.answer(review) | {"kind": "Other"},
    "too-few": lambda review: hooks.answer(review, convertedObjects=[]),
    "wrong-version": hooks.converting(lambda obj, _: obj),
    "other-kind": _with(kind="Other"),
    "other-name": _changed(name="other"),
    "other-namespace": _changed(namespace="other"),
    "other-uid": _changed(uid="other"),
    "no-metadata": hooks.converting(lambda _, desired: {"apiVersion": desired, "kind": "Gadget"}),
    "bad-label": _changed(labels={"a b": "c"}),
}


@pytest.mark.parametrize("behaviour", BROKEN.values(), ids=BROKEN)
def test_a_broken_webhook_is_an_internal_error_that_names_it(
    rest: Rest, gadgets: dict[str, str], webhook: ConversionWebhook, behaviour: hooks.Behaviour
) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    webhook.behaviour = behaviour
    answer = rest.get(f"{gadgets['v1']}/a")
    assert answer.code == 500, answer.body
    assert answer.json["kind"] == "Status"
    assert "conversion" in answer.json["message"]
    assert rest.get(f"{gadgets['v2']}/a").ok()["spec"]["counts"] == [1]


UNTOUCHABLE = {
    "resourceVersion": "1",
    "generation": 99,
    "creationTimestamp": "2001-01-01T00:00:00Z",
    "finalizers": ["x.io/f"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
    "deletionTimestamp": "2001-01-01T00:00:00Z",
}


@pytest.mark.parametrize("field", UNTOUCHABLE)
def test_a_conversion_cannot_change_the_systems_metadata(
    rest: Rest, gadgets: dict[str, str], webhook: ConversionWebhook, field: str
) -> None:
    made = rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()["metadata"]
    webhook.behaviour = _changed(**{field: UNTOUCHABLE[field]})
    found = rest.get(f"{gadgets['v1']}/a").ok()["metadata"]
    assert found.get(field) == made.get(field)


def test_a_conversion_may_change_labels_and_annotations(
    rest: Rest, gadgets: dict[str, str], webhook: ConversionWebhook
) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    webhook.behaviour = _changed(labels={"l": "1"}, annotations={"a": "2"})
    found = rest.get(f"{gadgets['v1']}/a").ok()["metadata"]
    assert (found["labels"], found["annotations"]) == ({"l": "1"}, {"a": "2"})


def test_what_a_conversion_returns_is_pruned_but_not_validated(
    rest: Rest, gadgets: dict[str, str], webhook: ConversionWebhook
) -> None:
    webhook.behaviour = _with(spec={"count": -4, "counts": [4], "nope": 1})
    made = rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    assert made["spec"] == {"counts": [1], "mode": "m"}
    assert rest.get(f"{gadgets['v1']}/a").ok()["spec"] == {"count": -4}


def test_with_the_webhook_down_the_stored_version_still_works(
    rest: Rest, namespace: str, tmp_path: Path
) -> None:
    group = f"down-{uuid.uuid4().hex[:6]}.subnetes.io"
    paths = {v: f"/apis/{group}/{v}/namespaces/{namespace}/gadgets" for v in ("v1", "v2")}
    with ConversionWebhook(tmp_path, HEALTHY) as webhook:
        install(rest, gadget_crd(webhook, group))
        rest.post(paths["v2"], gadget("a", "v2", {"counts": [1]}, group)).ok()
    answer = rest.get(f"{paths['v1']}/a")
    assert answer.code == 500
    assert "conversion webhook" in answer.json["message"]
    assert "refused" in answer.json["message"]
    assert rest.get(f"{paths['v2']}/a").ok()["spec"]["counts"] == [1]
    assert rest.post(paths["v1"], gadget("b", "v1", {"count": 1}, group)).code == 500
    rest.get(f"{paths['v2']}/b").failed(404, "NotFound")
    rest.delete(f"{paths['v2']}/a").ok()
    uninstall(rest, f"gadgets.{group}")


def test_a_table_shows_the_version_that_was_asked(rest: Rest, gadgets: dict[str, str]) -> None:
    rest.post(gadgets["v2"], gadget("a", "v2", {"counts": [1]})).ok()
    table = rest.get(
        gadgets["v1"], accept="application/json;as=Table;v=v1;g=meta.k8s.io", includeObject="Object"
    ).ok()
    assert table["rows"][0]["object"]["apiVersion"] == f"{GROUP}/v1"

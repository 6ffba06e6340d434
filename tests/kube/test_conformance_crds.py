"""The life of a CustomResourceDefinition: established, changed, with several versions, deleted."""

import copy
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.harness.rest import Rest, eventually
from tests.harness.twins import Twins
from tests.harness.widgets import CRDS, conditions, crd, install, uninstall, version

SIMPLE = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}


@pytest.fixture
def group(rest: Rest) -> Iterator[str]:
    """A group of this test's own; its CRD (Thing) is removed at the end."""
    name = f"g{uuid.uuid4().hex[:8]}.subnetes.io"
    yield name
    uninstall(rest, f"things.{name}")


def thing_crd(group: str, *versions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return crd("Thing", list(versions) or [version("v1", SIMPLE)], group=group, **spec)


def thing(group: str, v: str = "v1", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": f"{group}/{v}", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


def things(group: str, namespace: str, v: str = "v1") -> str:
    return f"/apis/{group}/{v}/namespaces/{namespace}/things"


def change(rest: Rest, group: str, edit: Any) -> dict[str, Any]:
    """Read the CRD, edit it, put it back."""
    found: dict[str, Any] = rest.get(f"{CRDS}/things.{group}").ok()
    edit(found)
    stored: dict[str, Any] = rest.put(f"{CRDS}/things.{group}", found).ok()
    return stored


def test_a_crd_gets_endpoints_and_says_so(rest: Rest, namespace: str, group: str) -> None:
    assert rest.get(things(group, namespace)).code == 404
    assert rest.post(CRDS, thing_crd(group)).code == 201
    wanted = {"NamesAccepted": "True", "Established": "True"}
    eventually(lambda: conditions(rest, f"things.{group}"), lambda found: wanted.items() <= found.items())
    status = rest.get(f"{CRDS}/things.{group}").ok()["status"]
    assert status["storedVersions"] == ["v1"]
    assert status["acceptedNames"]["plural"] == "things"
    eventually(lambda: rest.get(things(group, namespace)).code, lambda code: code == 200)
    assert rest.post(things(group, namespace), thing(group, a=1)).ok()["spec"] == {"a": 1}


def test_names_and_conversion_are_defaulted(rest: Rest, group: str) -> None:
    body = thing_crd(group)
    for key in ("singular", "listKind"):
        body["spec"]["names"].pop(key)
    stored = rest.post(CRDS, body).ok()["spec"]
    assert stored["names"] == {
        "kind": "Thing",
        "plural": "things",
        "singular": "thing",
        "listKind": "ThingList",
    }
    assert stored["conversion"] == {"strategy": "None"}


def test_a_changed_schema_takes_effect(rest: Rest, namespace: str, group: str) -> None:
    install(rest, thing_crd(group))
    path = things(group, namespace)
    rest.post(path, thing(group, a=1, b="x")).ok()

    def tighten(found: dict[str, Any]) -> None:
        properties = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
            "properties"
        ]
        properties["a"] |= {"maximum": 5}
        properties["c"] = {"type": "string", "default": "new"}

    stored = change(rest, group, tighten)
    assert stored["metadata"]["generation"] == 2
    # A dry run: a 6 that was stored before the new schema came would be let through for ever after.
    too_much = {"spec": {"a": 6}}
    eventually(lambda: rest.patch(f"{path}/a", too_much, dryRun="All").code, lambda code: code == 422)
    eventually(lambda: rest.get(f"{path}/a").ok()["spec"].get("c"), lambda value: value == "new")


def test_versions_without_conversion_differ_in_their_api_version_only(
    rest: Rest, namespace: str, group: str
) -> None:
    install(rest, thing_crd(group, version("v1", SIMPLE, storage=False), version("v2", SIMPLE)))
    made = rest.post(things(group, namespace, "v1"), thing(group, "v1", a=1)).ok()
    assert made["apiVersion"] == f"{group}/v1"
    seen = rest.get(f"{things(group, namespace, 'v2')}/a").ok()
    assert seen["apiVersion"] == f"{group}/v2"
    assert (seen["spec"], seen["metadata"]["uid"]) == (made["spec"], made["metadata"]["uid"])
    listed = rest.get(things(group, namespace, "v1")).ok()
    assert [item["apiVersion"] for item in listed["items"]] == [f"{group}/v1"]


def test_a_version_that_is_not_served_is_not_found(rest: Rest, namespace: str, group: str) -> None:
    install(rest, thing_crd(group, version("v1", SIMPLE), version("v2", SIMPLE, storage=False, served=False)))
    assert rest.get(things(group, namespace, "v2")).code == 404
    assert rest.get(things(group, namespace, "v1")).code == 200


def test_the_storage_version_can_move_and_both_are_remembered(rest: Rest, namespace: str, group: str) -> None:
    install(rest, thing_crd(group, version("v1", SIMPLE), version("v2", SIMPLE, storage=False)))
    rest.post(things(group, namespace), thing(group, a=1)).ok()

    def move(found: dict[str, Any]) -> None:
        for each in found["spec"]["versions"]:
            each["storage"] = each["name"] == "v2"

    change(rest, group, move)
    stored = eventually(
        lambda: rest.get(f"{CRDS}/things.{group}").ok()["status"]["storedVersions"],
        lambda found: len(found) == 2,
    )
    assert stored == ["v1", "v2"]
    for v in ("v1", "v2"):
        found = eventually(
            partial(rest.get, f"{things(group, namespace, v)}/a"), lambda answer: answer.code == 200
        )
        assert found.ok()["spec"] == {"a": 1}


def test_a_stored_version_cannot_be_dropped(twins: Twins) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.subnetes.io"
    body = thing_crd(group)
    for rest in (twins.real, twins.embedded):
        install(rest, body)

    def drop(rest: Rest) -> Any:
        found = rest.get(f"{CRDS}/things.{group}").ok()
        found["spec"]["versions"] = [version("v2", SIMPLE)]
        return rest.put(f"{CRDS}/things.{group}", found)

    status = twins.alike(drop).failed(422, "Invalid")
    assert "status.storedVersions[0]" in [cause["field"] for cause in status["details"]["causes"]]
    for rest in (twins.real, twins.embedded):
        uninstall(rest, f"things.{group}")


def test_deleting_a_crd_removes_its_objects_and_endpoints(rest: Rest, namespace: str, group: str) -> None:
    body = thing_crd(group)
    install(rest, body)
    path = things(group, namespace)
    rest.post(path, thing(group, a=1)).ok()
    with rest.watch(path) as watch:
        assert watch.take(1) == [("ADDED", "a")]
        uninstall(rest, f"things.{group}")
        assert watch.take(1) == [("DELETED", "a")]
    eventually(lambda: rest.get(path).code, lambda code: code == 404)
    install(rest, body)
    eventually(lambda: rest.get(path).code, lambda code: code == 200)
    assert rest.get(path).ok()["items"] == []


def test_a_crd_waits_for_the_finalizers_of_its_objects(rest: Rest, namespace: str, group: str) -> None:
    install(rest, thing_crd(group))
    path = things(group, namespace)
    body = thing(group, a=1)
    body["metadata"]["finalizers"] = ["x.io/f"]
    rest.post(path, body).ok()
    rest.delete(f"{CRDS}/things.{group}").ok()
    eventually(lambda: rest.get(f"{path}/a").ok()["metadata"].get("deletionTimestamp"))
    assert rest.get(f"{CRDS}/things.{group}").ok()["metadata"]["deletionTimestamp"]
    refused = rest.post(path, thing(group) | {"metadata": {"name": "b"}})
    assert "terminating" in refused.failed(403, "Forbidden")["message"]
    rest.patch(f"{path}/a", {"metadata": {"finalizers": None}}).ok()
    eventually(lambda: rest.get(f"{CRDS}/things.{group}").code, lambda code: code == 404)


def test_a_cluster_scoped_kind_has_no_namespaces(rest: Rest, namespace: str, group: str) -> None:
    install(rest, thing_crd(group, scope="Cluster"))
    made = rest.post(f"/apis/{group}/v1/things", thing(group, a=1)).ok()
    assert "namespace" not in made["metadata"]
    assert rest.get(f"/apis/{group}/v1/things/a").ok() == made
    assert rest.get(things(group, namespace)).code == 404


def _broken(edit: Any) -> dict[str, Any]:
    body = copy.deepcopy(thing_crd("wrong.subnetes.io"))
    edit(body)
    return body


WRONG = {
    "name": _broken(lambda b: b["metadata"].update(name="other")),
    "no-versions": _broken(lambda b: b["spec"].update(versions=[])),
    "no-storage": _broken(lambda b: b["spec"]["versions"][0].update(storage=False)),
    "two-storages": _broken(lambda b: b["spec"]["versions"].append(version("v2", SIMPLE))),
    "bad-scope": _broken(lambda b: b["spec"].update(scope="Galaxy")),
    "no-schema": _broken(lambda b: b["spec"]["versions"][0].pop("schema")),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_a_wrong_crd_is_refused_with_its_field(rest: Rest, body: dict[str, Any]) -> None:
    status = rest.post(CRDS, body).failed(422, "Invalid")
    assert status["details"]["causes"][0]["field"].startswith(("spec", "metadata.name"))


def test_group_kind_and_scope_cannot_be_changed(rest: Rest, group: str) -> None:
    install(rest, thing_crd(group))
    found = rest.get(f"{CRDS}/things.{group}").ok()
    for change in ({"scope": "Cluster"}, {"names": found["spec"]["names"] | {"kind": "Other"}}):
        status = rest.patch(f"{CRDS}/things.{group}", {"spec": change}).failed(422, "Invalid")
        assert status["details"]["causes"][0]["field"].startswith("spec.")

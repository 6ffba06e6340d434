"""What goes when its owner or its namespace goes. On the real side this is kube-controller-manager's work."""

import uuid
from typing import Any

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.rest import Rest, eventually
from tests.harness.widgets import widget


@pytest.fixture(autouse=True)
def _collector(server: object) -> None:
    if isinstance(server, ControlPlane):
        server.start_controller_manager()


def owned(name: str, *owners: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return widget(name, ownerReferences=[reference(owner) for owner in owners], **metadata)


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
    }


def gone(rest: Rest, path: str) -> None:
    eventually(lambda: rest.get(path).code, lambda code: code == 404, patience=90)


def test_dependents_follow_their_owner(rest: Rest, widgets: str) -> None:
    owner = rest.post(widgets, widget("owner")).ok()
    child = rest.post(widgets, owned("child", owner)).ok()
    rest.post(widgets, owned("grandchild", child)).ok()
    rest.post(widgets, widget("stranger")).ok()
    rest.delete(f"{widgets}/owner").ok()
    gone(rest, f"{widgets}/child")
    gone(rest, f"{widgets}/grandchild")
    assert rest.get(f"{widgets}/stranger").code == 200


def test_a_cluster_scoped_owner_takes_namespaced_dependents_along(rest: Rest, widgets: str) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    node = rest.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}).ok()
    rest.post(widgets, owned("nnc", node)).ok()
    rest.delete(f"/api/v1/nodes/{name}").ok()
    gone(rest, f"{widgets}/nnc")


def test_one_living_owner_is_enough(rest: Rest, widgets: str) -> None:
    first, second = (rest.post(widgets, widget(name)).ok() for name in ("first", "second"))
    rest.post(widgets, owned("child", first, second)).ok()
    witness = rest.post(widgets, owned("witness", first)).ok()
    rest.delete(f"{widgets}/first").ok()
    gone(rest, f"{widgets}/{witness['metadata']['name']}")
    kept = eventually(
        lambda: rest.get(f"{widgets}/child").ok()["metadata"]["ownerReferences"],
        lambda found: len(found) == 1,
    )
    assert kept == [reference(second)]
    rest.delete(f"{widgets}/second").ok()
    gone(rest, f"{widgets}/child")


def test_an_owner_of_another_uid_is_no_owner(rest: Rest, widgets: str) -> None:
    owner = rest.post(widgets, widget("owner")).ok()
    owner["metadata"]["uid"] = str(uuid.uuid4())
    rest.post(widgets, owned("child", owner)).ok()
    gone(rest, f"{widgets}/child")
    assert rest.get(f"{widgets}/owner").code == 200


def test_a_finalizer_holds_a_collected_object(rest: Rest, widgets: str) -> None:
    owner = rest.post(widgets, widget("owner")).ok()
    rest.post(widgets, owned("child", owner, finalizers=["x.io/hold"])).ok()
    rest.delete(f"{widgets}/owner").ok()
    deleting = eventually(
        lambda: rest.get(f"{widgets}/child").ok(),
        lambda found: "deletionTimestamp" in found["metadata"],
        patience=90,
    )
    assert deleting["metadata"]["finalizers"] == ["x.io/hold"]
    rest.patch(f"{widgets}/child", {"metadata": {"finalizers": None}}).ok()
    gone(rest, f"{widgets}/child")


@pytest.fixture
def doomed(rest: Rest) -> str:
    name = f"doomed-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert rest.post("/api/v1/namespaces", body).ok()["status"] == {"phase": "Active"}
    return name


def test_a_namespace_takes_everything_in_it_along(
    rest: Rest, widgets: str, namespace: str, doomed: str
) -> None:
    inside = widgets.replace(namespace, doomed)
    maps = f"/api/v1/namespaces/{doomed}/configmaps"
    rest.post(inside, widget("a")).ok()
    rest.post(maps, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}).ok()
    answer = rest.delete(f"/api/v1/namespaces/{doomed}").ok()
    assert answer["kind"] == "Namespace"
    assert answer["status"]["phase"] == "Terminating"
    gone(rest, f"/api/v1/namespaces/{doomed}")
    assert rest.get(inside).ok()["items"] == []
    assert rest.get(maps).ok()["items"] == []


def test_a_namespace_waits_for_finalizers_and_takes_nothing_new(
    rest: Rest, widgets: str, namespace: str, doomed: str
) -> None:
    inside = widgets.replace(namespace, doomed)
    rest.post(inside, widget("held", finalizers=["x.io/hold"])).ok()
    rest.delete(f"/api/v1/namespaces/{doomed}").ok()
    eventually(lambda: rest.get(f"{inside}/held").ok()["metadata"].get("deletionTimestamp"), patience=90)
    status = rest.post(inside, widget("late")).failed(403, "Forbidden")
    assert status["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert rest.get(f"/api/v1/namespaces/{doomed}").ok()["status"]["phase"] == "Terminating"
    rest.patch(f"{inside}/held", {"metadata": {"finalizers": None}}).ok()
    gone(rest, f"/api/v1/namespaces/{doomed}")

"""The core kinds that our code reads and writes: defaults, selectors, subresources, on both servers alike."""

import base64
import uuid
from typing import Any

import pytest

from tests.harness.rest import MERGE, Rest
from tests.harness.twins import Twins

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


def pod(name: str, node: str | None = None, **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} | metadata, "spec": spec}


def node(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name} | metadata}


def names(listed: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def event(name: str, namespace: str, about: dict[str, str], **more: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}}
    return (
        body
        | {"involvedObject": about | {"namespace": namespace}, "reason": "Tested", "type": "Normal"}
        | more
    )


def test_pods_are_selected_by_their_node(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name, where in {"a": "n1", "b": "n2", "c": None}.items():
        rest.post(path, pod(name, where)).ok()
    assert names(rest.get(path, fieldSelector="spec.nodeName=n1").ok()) == ["a"]
    assert names(rest.get(path, fieldSelector="spec.nodeName=").ok()) == ["c"]
    assert names(rest.get(path, fieldSelector="spec.nodeName!=n1").ok()) == ["b", "c"]
    everywhere = rest.get(
        "/api/v1/pods", fieldSelector=f"spec.nodeName=n1,metadata.namespace={namespace}"
    ).ok()
    assert names(everywhere) == ["a"]
    assert names(rest.get(path, fieldSelector="status.phase=Pending").ok()) == ["a", "b", "c"]


def test_pods_of_one_node_are_watched(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    version = rest.get(path).ok()["metadata"]["resourceVersion"]
    with rest.watch("/api/v1/pods", resourceVersion=version, fieldSelector="spec.nodeName=n7") as watch:
        rest.post(path, pod("a", "n8")).ok()
        rest.post(path, pod("b", "n7")).ok()
        rest.patch(f"{path}/b/status", {"status": {"phase": "Running", "podIP": "10.1.1.1"}}).ok()
        rest.delete(f"{path}/b", {"gracePeriodSeconds": 0}).ok()
        assert watch.take(1) == [("ADDED", "b")]
        running = watch.next()
        assert (running["type"], running["object"]["status"]["podIP"]) == ("MODIFIED", "10.1.1.1")
        assert watch.until("DELETED")["object"]["metadata"]["name"] == "b"


def test_a_new_pod_is_pending(rest: Rest, namespace: str) -> None:
    made = rest.post(f"/api/v1/namespaces/{namespace}/pods", pod("a") | {"status": {"phase": "Failed"}}).ok()
    assert made["status"]["phase"] == "Pending"


def test_pod_status_and_spec_are_written_apart(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/a"
    rest.post(f"/api/v1/namespaces/{namespace}/pods", pod("a")).ok()
    assert rest.patch(path, {"status": {"phase": "Running"}}).ok()["status"]["phase"] == "Pending"
    assert rest.patch(f"{path}/status", {"status": {"phase": "Running"}}).ok()["status"]["phase"] == "Running"
    assert rest.patch(path, {"metadata": {"labels": {"a": "b"}}}).ok()["status"]["phase"] == "Running"


def test_nodes_have_a_status_and_labels(rest: Rest) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    rest.post("/api/v1/nodes", node(name, labels={"zone": name})).ok()
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    }
    patched = rest.patch(f"/api/v1/nodes/{name}/status", {"status": status}).ok()
    assert patched["status"]["addresses"] == status["addresses"]
    assert names(rest.get("/api/v1/nodes", labelSelector=f"zone={name}").ok()) == [name]
    assert names(rest.get("/api/v1/nodes", fieldSelector=f"metadata.name={name}").ok()) == [name]
    rest.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"networking.subnetes.io/net": "true"}}}).ok()
    assert names(rest.get("/api/v1/nodes", labelSelector="networking.subnetes.io/net=true").ok()) == [name]
    rest.delete(f"/api/v1/nodes/{name}").ok()


def test_secrets_take_string_data(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    made = rest.post(path, body).ok()
    assert made["data"] == {"k": base64.b64encode(b"v").decode()}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


def test_config_maps_and_service_accounts_are_kept(twins: Twins) -> None:
    root = f"/api/v1/namespaces/{twins.namespace}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    assert twins.ask("POST", f"{root}/configmaps", body).ok()["data"] == {"a": "1"}
    answer = twins.ask("PATCH", f"{root}/configmaps/c", {"data": {"a": None, "b": "2"}}, content_type=MERGE)
    assert answer.ok()["data"] == {"b": "2"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}}
    twins.ask("POST", f"{root}/serviceaccounts", account).ok()
    for path in (f"{root}/configmaps", f"{root}/configmaps/c", f"{root}/serviceaccounts/s"):
        twins.ask("GET", path).ok()
    assert twins.ask("DELETE", f"{root}/configmaps/c").ok()["status"] == "Success"


def test_leases_are_taken_with_a_resource_version(rest: Rest, namespace: str) -> None:
    path = LEASES.format(namespace)
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2024-01-01T00:00:00.000001Z"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": spec}
    made = rest.post(path, body).ok()
    assert made["spec"] == spec
    taken = rest.put(f"{path}/l", made | {"spec": spec | {"holderIdentity": "b"}}).ok()
    assert taken["spec"]["holderIdentity"] == "b"
    rest.put(f"{path}/l", made | {"spec": spec | {"holderIdentity": "c"}}).failed(409, "Conflict")
    rest.post(path, body).failed(409, "AlreadyExists")


def test_events_are_selected_by_what_they_are_about(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    for name, about in {
        "e1": {"kind": "Pod", "name": "p"},
        "e2": {"kind": "Node", "name": "n", "uid": "u"},
    }.items():
        rest.post(path, event(name, namespace, about)).ok()
    expected = {
        "involvedObject.kind=Pod": ["e1"],
        "involvedObject.name=n": ["e2"],
        "involvedObject.uid=u": ["e2"],
        f"involvedObject.namespace={namespace},involvedObject.name=p": ["e1"],
        "reason=Tested": ["e1", "e2"],
        "type=Warning": [],
    }
    assert {each: names(rest.get(path, fieldSelector=each).ok()) for each in expected} == expected


def test_an_event_may_be_counted_up(rest: Rest, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    rest.post(path, event("e", namespace, {"kind": "Pod", "name": "p"}, count=1)).ok()
    assert rest.patch(f"{path}/e", {"count": 2, "message": "again"}).ok()["count"] == 2


def test_namespaces_are_active_and_labelled_with_their_name(rest: Rest) -> None:
    name = f"fresh-{uuid.uuid4().hex[:8]}"
    made = rest.post(
        "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    ).ok()
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert made["status"] == {"phase": "Active"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    rest.delete(f"/api/v1/namespaces/{name}").ok()


def test_the_usual_namespaces_are_there(rest: Rest) -> None:
    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= set(
        names(rest.get("/api/v1/namespaces").ok())
    )


@pytest.mark.parametrize("path", ["pods/none", "nodes/none", "secrets/none", "configmaps/none"])
def test_a_missing_core_object_is_not_found(twins: Twins, path: str) -> None:
    root = "/api/v1" if path.startswith("nodes") else f"/api/v1/namespaces/{twins.namespace}"
    status = twins.ask("GET", f"{root}/{path}").failed(404, "NotFound")
    assert status["details"] == {"name": "none", "kind": path.partition("/")[0]}


def test_core_errors_have_the_same_words(twins: Twins) -> None:
    root = f"/api/v1/namespaces/{twins.namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    twins.do("POST", root, body)
    twins.ask("POST", root, body).failed(409, "AlreadyExists")
    twins.ask("PUT", f"{root}/c", body | {"metadata": {"name": "c", "resourceVersion": "1"}}).failed(
        409, "Conflict"
    )
    twins.ask("POST", root, body | {"metadata": {"name": "C_"}}).failed(422, "Invalid")

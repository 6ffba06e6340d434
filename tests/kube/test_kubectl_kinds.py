"""kubectl on kinds: explained, listed, and our own and the core ones created, shown and deleted."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kubectl import Pair, manifest
from tests.harness.rest import eventually

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
SUBNET = {
    "apiVersion": "acn.azure.com/v1alpha1",
    "kind": "ClusterSubnet",
    "metadata": {"name": "blue"},
    "spec": {"addressSpace": ["10.0.0.0/16"]},
}
EXPLAINED = (
    "widget.spec",
    "widget.spec.parts",
    "widget.spec.size",
    "wg.status",
    "nnc.spec",
    "networkclass.spec",
)


@pytest.mark.parametrize("what", EXPLAINED)
def test_explain_prints_the_same(kubectl: Pair, what: str) -> None:
    # The real server publishes the schema of a new CRD some seconds after it serves it.
    eventually(lambda: kubectl.real.run("explain", what).code, lambda code: code == 0)
    assert kubectl.same("explain", what).code == 0
    assert kubectl.same("explain", what, "--recursive").code == 0


def test_explain_says_what_is_not_there(kubectl: Pair) -> None:
    assert kubectl.same("explain", "widget.spec.nope").code == 1
    assert kubectl.same("explain", "gizmo").code == 1


@pytest.mark.parametrize(
    "kind", ["widget", "clustersubnet", "nnc", "networkclass", "clusternetwork", "network"]
)
def test_explain_of_a_kind_differs_in_the_words_about_metadata_only(kubectl: Pair, kind: str) -> None:
    shown = [each.run("explain", kind).stdout for each in (kubectl.embedded, kubectl.real)]
    assert _without_common_fields(shown[0]) == _without_common_fields(shown[1])
    assert all(
        field in shown[0] for field in ("apiVersion\t<string>", "kind\t<string>", "metadata\t<ObjectMeta>")
    )
    recursive = [each.run("explain", kind, "--recursive").stdout for each in (kubectl.embedded, kubectl.real)]
    assert _without_common_fields(recursive[0]) == _without_common_fields(recursive[1])


def _without_common_fields(text: str) -> str:
    """Cut from apiVersion to spec: those three fields' descriptions are Kubernetes' own texts."""
    head, tail = text.split("  apiVersion\t", 1)
    return head + tail[tail.index("\n  spec\t") :]


def test_api_resources_of_our_groups_print_the_same(kubectl: Pair) -> None:
    for group in ("conformance.subnetes.io", "acn.azure.com", "networking.subnetes.io"):
        for output in ((), ("-o", "wide"), ("-o", "name")):
            assert kubectl.same("api-resources", f"--api-group={group}", *output).stdout
    versions = kubectl.embedded.run("api-versions").stdout.split()
    assert set(versions) <= set(kubectl.real.run("api-versions").stdout.split())
    assert {"v1", "acn.azure.com/v1alpha1", "networking.subnetes.io/v1beta1"} <= set(versions)


def test_core_kinds_are_created_and_shown(kubectl: Pair) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "me"}}
    kubectl.same("create", "-f", "-", stdin=manifest(config, secret, account))
    assert kubectl.same("create", "-f", "-", stdin=manifest(config)).code == 1
    for what in ("configmap/c", "secret/s"):
        kubectl.same("get", what, "-o", "name")
    kubectl.same("get", "configmap", "c", "-o", "yaml")
    kubectl.same("get", "secret", "s", "-o", "jsonpath={.data}")
    kubectl.same("patch", "configmap", "c", "-p", '{"data":{"l":"w"}}')
    changed = manifest(config | {"data": {"k": "x"}})
    for printed in ("configured", "unchanged"):
        applied = kubectl.same("apply", "-f", "-", stdin=changed)
        assert applied.stdout == f"configmap/c {printed}\n"
    kubectl.same("describe", "configmap", "c")
    kubectl.same("get", "namespace", kubectl.namespace)
    kubectl.same("get", "namespace", kubectl.namespace, "-o", "wide", "--show-labels")
    kubectl.same("delete", "configmap", "c")


@pytest.fixture
def node(kubectl: Pair) -> Iterator[str]:
    name = f"node-{kubectl.namespace}"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    kubectl.same("create", "-f", "-", stdin=json.dumps(body))
    yield name
    kubectl.same("delete", "node", name)


def test_nodes_and_pods_print_the_same(kubectl: Pair, node: str) -> None:
    kubectl.same("get", "node", node, "-o", "name")
    kubectl.same("label", "node", node, "networking.subnetes.io/net=true")
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
    kubectl.same(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}),
    )
    kubectl.same("get", "pods", "--field-selector", f"spec.nodeName={node}", "-o", "name")
    kubectl.same("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    kubectl.same("delete", "pod", "p", "--force", "--grace-period=0")


def test_our_kinds_are_applied_shown_and_explained(kubectl: Pair) -> None:
    kubectl.same("apply", "-f", "-", stdin=manifest(SUBNET))
    for output in ((), ("-o", "wide"), ("-o", "yaml")):
        kubectl.same("get", "clustersubnets", *output)
    kubectl.same("describe", "clustersubnet", "blue")
    for wrong in ({"addressSpace": ["nonsense"]}, {"addressSpace": ["10.0.0.0/16"], "scaler": {"batch": 0}}):
        body = SUBNET | {"metadata": {"name": "red"}, "spec": wrong}
        assert kubectl.same("apply", "-f", "-", stdin=manifest(body)).code == 1


def test_crds_are_applied_again_unchanged(kubectl: Pair) -> None:
    again = kubectl.same("apply", "-f", str(CRDS))
    assert again.stdout.count("unchanged") == len(list(CRDS.glob("*.yaml")))
    kubectl.same("get", "crd", "clustersubnets.acn.azure.com", "-o", "name")

"""Discovery and OpenAPI documents."""

from typing import Any

import pytest

from subnetes.api.resource import Resource
from subnetes.apiserver import discovery, openapi
from subnetes.apiserver.resources import Served


def _served(group: str, version: str, kind: str, *, namespaced: bool = True, **more: Any) -> Served:
    resource = Resource(group, version, kind, f"{kind.lower()}s", namespaced)
    return Served(resource=resource, singular=kind.lower(), list_kind=f"{kind}List", **more)


SPEC = {"type": "object", "description": "Wanted.", "properties": {"size": {"type": "integer"}}}
SERVED = [
    _served("", "v1", "Secret"),
    _served("", "v1", "Node", namespaced=False, status_subresource=True, short_names=("no",)),
    _served("t.io", "v1beta1", "Thing", openapi={"type": "object", "properties": {"spec": SPEC}}),
    _served(
        "t.io",
        "v1",
        "Thing",
        openapi={"type": "object", "properties": {"spec": SPEC}},
        status_subresource=True,
        categories=("all",),
    ),
]


def test_groups_list_their_versions_best_first() -> None:
    (group,) = discovery.api_groups(SERVED)["groups"]
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["groupVersion"] == "t.io/v1"
    assert discovery.api_group(SERVED, "t.io") == {"kind": "APIGroup", "apiVersion": "v1"} | group


@pytest.mark.parametrize("unsorted", [["v1alpha", "v1beta2", "v10", "v2", "v1alpha3", "v1beta10", "abc"]])
def test_versions_sort_as_kubernetes_prefers_them(unsorted: list[str]) -> None:
    expected = ["v10", "v2", "v1beta10", "v1beta2", "v1alpha3", "abc", "v1alpha"]
    assert sorted(unsorted, key=discovery.version_priority) == expected


def test_resources_tell_scope_names_and_subresources() -> None:
    core = discovery.api_resources(SERVED, "", "v1")
    assert core is not None
    assert [each["name"] for each in core["resources"]] == ["nodes", "nodes/status", "secrets"]
    assert core["resources"][0]["shortNames"] == ["no"]
    assert core["resources"][0]["namespaced"] is False
    custom = discovery.api_resources(SERVED, "t.io", "v1")
    assert custom is not None
    assert custom["groupVersion"] == "t.io/v1"
    assert custom["resources"][0]["categories"] == ["all"]


def test_what_is_not_served_is_not_found() -> None:
    assert discovery.api_group(SERVED, "none.io") is None
    assert discovery.api_resources(SERVED, "t.io", "v3") is None
    assert openapi.document(SERVED, "apis/t.io/v3") is None


def test_openapi_says_that_the_server_validates_fields_and_shows_the_schema() -> None:
    document = openapi.document(SERVED, "apis/t.io/v1")
    assert document is not None
    patch = document["paths"]["/apis/t.io/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "t.io", "version": "v1", "kind": "Thing"}
    assert document["components"]["schemas"]["io.t.v1.Thing"]["properties"]["spec"] == SPEC


def test_every_document_of_the_index_is_there() -> None:
    paths = openapi.index(SERVED)["paths"]
    assert sorted(paths) == ["api/v1", "apis/t.io/v1", "apis/t.io/v1beta1"]
    assert all(openapi.document(SERVED, path) for path in paths)
    assert paths["api/v1"] == {"serverRelativeURL": "/openapi/v3/api/v1"}

"""How clients find out what there is (discovery, OpenAPI) and how kubectl shows it (tables)."""

from typing import Any

import pytest

from tests.harness.rest import MERGE, Rest, eventually
from tests.harness.twins import Twins
from tests.harness.widgets import GROUP, widget

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
CORE = ("namespaces", "nodes", "pods", "secrets", "configmaps", "events", "serviceaccounts")


def test_our_group_is_described_as_the_real_server_describes_it(twins: Twins) -> None:
    group = twins.ask("GET", f"/apis/{GROUP}").ok()
    assert group["preferredVersion"] == {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    resources = twins.embedded.get(f"/apis/{GROUP}/v1").ok()["resources"]
    real = twins.real.get(f"/apis/{GROUP}/v1").ok()["resources"]
    assert [_comparable(each) for each in resources] == [_comparable(each) for each in real]
    assert [each["name"] for each in resources] == ["widgets", "widgets/status"]


def _comparable(resource: dict[str, Any]) -> dict[str, Any]:
    """The storage version's hash is the real server's own business."""
    return {key: value for key, value in resource.items() if key != "storageVersionHash"}


def test_our_group_is_listed(twins: Twins) -> None:
    found = [
        next(group for group in rest.get("/apis").ok()["groups"] if group["name"] == GROUP)
        for rest in (twins.embedded, twins.real)
    ]
    assert found[0] == found[1]


def test_an_unknown_group_or_version_is_not_found(rest: Rest) -> None:
    for path in ("/apis/nowhere.io", "/apis/nowhere.io/v1", f"/apis/{GROUP}/v9", "/api/v9"):
        assert rest.get(path).code == 404


def test_core_kinds_are_described_alike(twins: Twins) -> None:
    found = []
    for rest in (twins.embedded, twins.real):
        resources = {each["name"]: each for each in rest.get("/api/v1").ok()["resources"]}
        wanted = {name: _comparable(resources[name]) for name in CORE}
        found.append(wanted)
    for name in CORE:
        assert found[0][name] == found[1][name]


def test_the_version_is_said(rest: Rest) -> None:
    version = rest.get("/version").ok()
    assert (version["major"], version["minor"].rstrip("+")) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


@pytest.mark.parametrize("path", ["/readyz", "/livez", "/healthz"])
def test_health_is_a_plain_ok(rest: Rest, path: str) -> None:
    answer = rest.get(path, accept="*/*")
    assert (answer.code, answer.body) == (200, b"ok")


def test_openapi_describes_our_kind(rest: Rest, widgets: str) -> None:
    key = f"apis/{GROUP}/v1"
    index = eventually(lambda: rest.get("/openapi/v3").ok()["paths"], lambda paths: key in paths)
    address = index[key]["serverRelativeURL"]
    path, _, query = address.partition("?")
    document = rest.get(path, **dict([query.split("=", 1)] if query else [])).ok()
    schemas = document["components"]["schemas"]
    kinds = [
        (name, schema)
        for name, schema in schemas.items()
        if {"group": GROUP, "kind": "Widget", "version": "v1"}
        in schema.get("x-kubernetes-group-version-kind", [])
    ]
    assert len(kinds) == 1
    _, schema = kinds[0]
    assert schema["description"] == "A widget."
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 10
    operation = document["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets"]["post"]
    assert operation["x-kubernetes-group-version-kind"] == {"group": GROUP, "kind": "Widget", "version": "v1"}


SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": {
        "size": 4,
        "color": "blue",
        "ratio": 0.5,
        "enabled": True,
        "tags": ["x", "y"],
        "since": "2020-01-01T00:00:00Z",
    },
    "odd": {"size": 5, "ratio": 2, "enabled": False, "tags": []},
}


def test_a_table_is_equal_cell_by_cell(twins: Twins) -> None:
    for name, spec in SPECS.items():
        twins.do("POST", twins.widgets, widget(name, spec))
    status = {
        "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}
    }
    twins.do("PATCH", f"{twins.widgets}/full/status", status, content_type=MERGE)
    tables = [rest.get(twins.widgets, accept=TABLE).ok() for rest in (twins.embedded, twins.real)]
    for table in tables:
        assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [_columns(table) for table in tables]
    assert columns[0] == columns[1]
    age = [column["name"] for column in columns[0]].index("Age")
    rows = [[_without(row["cells"], age) for row in table["rows"]] for table in tables]
    assert rows[0] == rows[1]
    assert [row[0] for row in rows[0]] == ["full", "odd", "plain"]
    assert [row["object"]["kind"] for row in tables[0]["rows"]] == ["PartialObjectMetadata"] * 3
    assert set(tables[0]["rows"][0]["object"]) == set(tables[1]["rows"][0]["object"])


def _columns(table: Any) -> list[dict[str, Any]]:
    """The description of the first column, Name, is Kubernetes' own text."""
    name, *others = table["columnDefinitions"]
    return [{key: value for key, value in name.items() if key != "description"}, *others]


def _without(cells: list[Any], index: int) -> list[Any]:
    return cells[:index] + cells[index + 1 :]


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_table_includes_as_much_of_the_object_as_was_asked(twins: Twins, include: str) -> None:
    twins.do("POST", twins.widgets, widget("a"))
    kinds = []
    for rest in (twins.embedded, twins.real):
        table = rest.get(f"{twins.widgets}/a", accept=TABLE, includeObject=include).ok()
        found = table["rows"][0].get("object")
        kinds.append(found and found["kind"])
    assert (
        kinds[0]
        == kinds[1]
        == {"None": None, "Metadata": "PartialObjectMetadata", "Object": "Widget"}[include]
    )


def test_a_table_of_nothing_has_columns(twins: Twins) -> None:
    tables = [rest.get(twins.widgets, accept=TABLE).ok() for rest in (twins.embedded, twins.real)]
    assert _columns(tables[0]) == _columns(tables[1])
    assert [table.get("rows") for table in tables] == [[], []]


def test_errors_are_statuses_also_where_a_table_was_asked(rest: Rest, widgets: str) -> None:
    rest.get(f"{widgets}/none", accept=TABLE).failed(404, "NotFound")


def test_an_unknown_accept_header_is_not_acceptable(twins: Twins) -> None:
    twins.alike(lambda rest: rest.get(twins.widgets, accept="text/html")).failed(406, "NotAcceptable")

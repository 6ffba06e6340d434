"""Tables and discovery documents beside the real kube-apiserver's, for the same objects and kinds.

The descriptions of the standard columns are our own words, and ages are told from two clocks: both are left
out of the comparison.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from subnetes.apiserver import discovery
from subnetes.apiserver.builtins import BUILTINS, DEFINITIONS
from subnetes.apiserver.definitions import endpoints
from subnetes.apiserver.resources import Served
from subnetes.apiserver.table import table
from tests.harness.control_plane import ControlPlane
from tests.harness.rest import Rest
from tests.harness.widgets import GROUP, collection, install, widget, widget_crd

Json = dict[str, Any]
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
CORE = [builtin.served for builtin in BUILTINS] + [DEFINITIONS]
WIDGETS: list[Json] = [
    {},
    {"size": 2, "ratio": 1, "enabled": True, "tags": ["a", "b"], "since": "2001-01-01T00:00:00Z"},
    {"ratio": 2.5, "enabled": False, "tags": [], "since": "2024-01-01T00:00:00.5+01:00"},
]


@pytest.fixture(scope="module")
def rest(real: ControlPlane) -> Rest:
    client = Rest(real.url, real.ca_file, real.token)
    install(client, widget_crd())
    for index, spec in enumerate(WIDGETS):
        assert client.post(collection("default"), widget(f"table-{index}", spec)).code in (201, 409)
    conditions = [{"type": "Other", "status": "Maybe"}, {"type": "Ready", "status": "True"}]
    path = f"{collection('default')}/table-1/status"
    client.patch(path, {"status": {"conditions": conditions}}).ok()
    return client


def _widgets(rest: Rest) -> Served:
    crd = rest.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{GROUP}").ok()
    (endpoint,) = endpoints(crd, 0)
    return endpoint.served


def _columns(shown: Json) -> list[Any]:
    keys = ("name", "type", "format", "priority")
    return [[column[key] for key in keys] for column in shown["columnDefinitions"]]


def _rows(shown: Json) -> list[Any]:
    young = [i for i, c in enumerate(shown["columnDefinitions"]) if c["name"] == "Age"]
    cells = [[c for i, c in enumerate(row["cells"]) if i not in young] for row in shown["rows"]]
    return list(zip(cells, [row["object"] for row in shown["rows"]], strict=True))


def _compare(rest: Rest, served: Served, **query: str) -> None:
    path = served.resource.path()
    items = rest.get(path).ok()
    for item in items["items"]:
        item |= {"apiVersion": served.resource.api_version, "kind": served.resource.kind}
    theirs = rest.get(path, accept=TABLE, **query).ok()
    ours = table(
        served,
        items["items"],
        resource_version=theirs["metadata"]["resourceVersion"],
        continue_=None,
        remaining=None,
        now=datetime.now(UTC),
        include_object=query.get("includeObject", "Metadata"),
    )
    assert _columns(ours) == _columns(theirs)
    assert _rows(ours) == _rows(theirs)
    assert ours["metadata"] == theirs["metadata"]


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
def test_a_custom_resource_is_printed_as_by_kubernetes(rest: Rest, include: str) -> None:
    _compare(rest, _widgets(rest), includeObject=include)


def test_declared_columns_are_described_as_by_kubernetes(rest: Rest) -> None:
    theirs = rest.get(f"/apis/{GROUP}/v1/widgets", accept=TABLE).ok()["columnDefinitions"]
    standard: Json = {"resource_version": "1", "continue_": None, "remaining": None, "now": datetime.now(UTC)}
    ours = table(_widgets(rest), [], **standard)["columnDefinitions"]
    assert [column["description"] for column in ours[1:]] == [column["description"] for column in theirs[1:]]


def _without_hash(resources: list[Json]) -> list[Json]:
    return [{key: value for key, value in each.items() if key != "storageVersionHash"} for each in resources]


def test_a_custom_group_is_discovered_as_in_kubernetes(rest: Rest) -> None:
    served = [*CORE, _widgets(rest)]
    theirs = rest.get(f"/apis/{GROUP}/v1").ok()
    theirs["resources"] = [
        each for each in _without_hash(theirs["resources"]) if each["name"].startswith("widgets")
    ]
    assert discovery.api_resources(served, GROUP, "v1") == theirs
    assert discovery.api_group(served, GROUP) == rest.get(f"/apis/{GROUP}").ok()


@pytest.mark.parametrize("served", CORE, ids=lambda served: served.key)
def test_a_core_kind_is_discovered_as_in_kubernetes(rest: Rest, served: Served) -> None:
    resource = served.resource
    ours = discovery.api_resources([served], resource.group, resource.version)
    assert ours is not None
    theirs = rest.get(resource.path().rpartition("/")[0]).ok()
    names = [each["name"] for each in ours["resources"]]
    theirs["resources"] = [each for each in _without_hash(theirs["resources"]) if each["name"] in names]
    assert ours == theirs

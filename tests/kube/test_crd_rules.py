"""Our CRDs on an API server: accepted as structural, and every limit and rule in them enforced, both ways."""

import copy
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from subnetes.api.crd import WebhookConversion, crds
from tests.harness.rest import Answer, Rest
from tests.harness.widgets import CRDS, conditions, install, uninstall
from tests.kube.crd_limits import ROWS
from tests.kube.crd_rows import REASONS, SAMPLES, Json, Row, definitions, limits, schema_of


@dataclass(frozen=True)
class Collection:
    """Where the objects of a kind live, and how they must be made."""

    rest: Rest
    definition: Json

    @property
    def path(self) -> str:
        spec = self.definition["spec"]
        scope = "/namespaces/default" if spec["scope"] == "Namespaced" else ""
        return f"/apis/{spec['group']}/{spec['versions'][0]['name']}{scope}/{spec['names']['plural']}"

    def create(self, body: Json) -> Answer:
        spec = self.definition["spec"]
        head = {"apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}", "kind": spec["names"]["kind"]}
        return self.rest.post(self.path, head | body)

    def replace(self, current: Json, body: Json, subresource: str = "") -> Answer:
        name = current["metadata"]["name"]
        return self.rest.put(
            f"{self.path}/{name}{subresource}", {**current, **body, "metadata": current["metadata"]}
        )

    def delete(self, name: str) -> None:
        assert self.rest.delete(f"{self.path}/{name}").code in (200, 404)


@pytest.fixture(scope="module")
def collections(rest: Rest) -> Iterator[dict[str, Collection]]:
    wanted = definitions()
    names = [definition["metadata"]["name"] for definition in wanted.values()]
    ours = [name for name in names if rest.get(f"{CRDS}/{name}").code == 404]
    for definition in wanted.values():
        install(rest, definition)
    yield {kind: Collection(rest, definition) for kind, definition in wanted.items()}
    for name in ours:
        uninstall(rest, name)


@pytest.fixture
def name() -> str:
    return f"row-{uuid.uuid4().hex[:12]}"


def _attempt(collection: Collection, row: Row, value: Any, name: str) -> Answer:
    """Write the row's object with this value in place, where the value can be written."""
    if row.path == "":
        return collection.create({**SAMPLES[row.kind], "metadata": {"name": value}})
    body = row.object(value)
    if not row.on_update and not row.path.startswith("status"):
        return collection.create({**body, "metadata": {"name": name}})
    sample = copy.deepcopy(SAMPLES[row.kind])
    current = collection.create({**sample, "metadata": {"name": name}}).ok()
    return collection.replace(current, body, "/status" if row.path.startswith("status") else "")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id[:120])
def test_a_value_within_the_limit_is_accepted(
    collections: dict[str, Collection], row: Row, name: str
) -> None:
    collection = collections[row.kind]
    stored = _attempt(collection, row, row.good, name).ok()
    collection.delete(stored["metadata"]["name"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id[:120])
def test_a_value_beyond_the_limit_is_refused_and_its_field_named(
    collections: dict[str, Collection], row: Row, name: str
) -> None:
    collection = collections[row.kind]
    status = _attempt(collection, row, row.bad, name).failed(422, "Invalid")
    collection.delete(name)
    causes = [cause for cause in status["details"]["causes"] if cause["field"] == _blamed(row)]
    assert causes, status
    reason = "FieldValueInvalid" if row.is_rule else REASONS[row.limit]
    assert reason in {cause["reason"] for cause in causes}
    assert not row.is_rule or any(cause["message"].endswith(f": {row.limit}") for cause in causes)


def _blamed(row: Row) -> str:
    return re.sub(r"\{\}", ".some", (row.blamed or row.path).replace("[]", "[0]"))


def test_every_limit_and_every_rule_has_its_row() -> None:
    stated = {(kind, *limit) for kind, crd in definitions().items() for limit in limits(schema_of(crd))}
    assert {row.key for row in ROWS} == stated


def test_the_definitions_are_established_and_structural(
    collections: dict[str, Collection], rest: Rest
) -> None:
    for collection in collections.values():
        found = conditions(rest, collection.definition["metadata"]["name"])
        assert found["Established"] == found["NamesAccepted"] == "True"
        assert found.get("NonStructuralSchema", "False") == "False"


def test_nothing_in_the_definitions_is_dropped_by_the_server(
    collections: dict[str, Collection], rest: Rest
) -> None:
    for collection in collections.values():
        wanted = collection.definition["spec"]["versions"]
        stored = rest.get(f"{CRDS}/{collection.definition['metadata']['name']}").ok()["spec"]["versions"]
        assert stored == wanted


def test_both_versions_are_accepted_with_a_conversion_webhook(rest: Rest) -> None:
    (crd, *_) = crds(WebhookConversion("https://127.0.0.1:9/convert"))
    group = f"{uuid.uuid4().hex[:8]}.subnetes.io"
    crd["spec"]["group"], crd["metadata"]["name"] = group, f"nodenetworkconfigs.{group}"
    install(rest, crd)
    try:
        stored = rest.get(f"{CRDS}/{crd['metadata']['name']}").ok()
        assert [(v["name"], v["served"], v["storage"]) for v in stored["spec"]["versions"]] == [
            ("v1beta1", True, True),
            ("v1alpha", True, False),
        ]
    finally:
        uninstall(rest, crd["metadata"]["name"])


def test_v1alpha_is_not_served_without_a_webhook(collections: dict[str, Collection], rest: Rest) -> None:
    assert rest.get("/apis/acn.azure.com/v1alpha/nodenetworkconfigs").code == 404


def test_defaults_are_filled_in(collections: dict[str, Collection], name: str) -> None:
    subnets = collections["ClusterSubnet"]
    stored = subnets.create({"metadata": {"name": name}}).ok()
    subnets.delete(name)
    assert stored["spec"] == {"thresholds": {"upper": 0.9, "lower": 0.8}}
    fabrics = collections["ClusterNetwork"]
    options = {"vlanOptions": {"nics": ["eth0"], "bond": {}}}
    spec = {"NetworkClassName": "vlan", "DefaultOptions": options}
    stored = fabrics.create({"metadata": {"name": name}, "spec": spec}).ok()
    fabrics.delete(name)
    bond = stored["spec"]["DefaultOptions"]["vlanOptions"]["bond"]
    assert bond == {"mode": "active-backup", "miimon": 100}

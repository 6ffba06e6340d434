"""The CRDs as data: structural, described, up to date on disk, safe to install, cheap to import."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from subnetes.api import generate
from subnetes.api.crd import KINDS, WebhookConversion, crds, custom_resource_definition
from subnetes.api.customresourcedefinition import CustomResourceDefinition, ServiceReference
from subnetes.api.meta import Object
from subnetes.api.model import from_builtins, to_builtins
from subnetes.api.resource import Resource
from subnetes.api.schema import openapi_v3_schema

ALL_KINDS = [kind for versions in KINDS for kind in versions]


def _nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from _nodes(each, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if keyword in schema:
            yield from _nodes(schema[keyword], f"{path}[]")


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: f"{kind.resource.api_version} {kind.__name__}")
class TestEverySchema:
    def test_is_structural(self, kind: type[Object]) -> None:
        for path, node in _nodes(openapi_v3_schema(kind)):
            assert node["type"] in ("object", "array", "string", "integer", "number", "boolean"), path
            assert not {"$ref", "allOf", "anyOf", "oneOf", "not"} & node.keys(), path

    def test_describes_every_property(self, kind: type[Object]) -> None:
        for path, node in _nodes(openapi_v3_schema(kind)):
            if not path.endswith("[]") and path != ".metadata":
                assert node["description"].endswith("."), path

    def test_has_a_status_subresource_if_there_is_a_status(self, kind: type[Object]) -> None:
        (version,) = custom_resource_definition([kind]).spec.versions
        has_status = "status" in openapi_v3_schema(kind)["properties"]
        assert (version.subresources is not None) == has_status


def test_the_files_in_deploy_are_up_to_date() -> None:
    assert generate.stale(generate.FOLDER) == []


def test_check_fails_on_a_changed_missing_or_left_over_file(tmp_path: Path) -> None:
    assert generate.main(["--folder", str(tmp_path)]) == 0
    assert generate.main(["--check", "--folder", str(tmp_path)]) == 0
    first, second, *_ = sorted(tmp_path.iterdir())
    first.write_text(first.read_text().replace("Cluster", "Namespaced"))
    second.unlink()
    (tmp_path / "old.yaml").write_text("")
    assert generate.stale(tmp_path) == [first.name, second.name, "old.yaml"]
    assert generate.main(["--check", "--folder", str(tmp_path)]) == 1
    assert generate.main(["--folder", str(tmp_path)]) == 0
    assert generate.stale(tmp_path) == []


def test_the_files_hold_what_crds_returns() -> None:
    loaded = [yaml.safe_load(text) for text in generate.files().values()]
    assert loaded == crds()


def _versions(crd: CustomResourceDefinition) -> list[tuple[str, bool, bool]]:
    return [(version.name, version.served, version.storage) for version in crd.spec.versions]


def test_without_a_webhook_only_the_storage_version_is_served() -> None:
    crd = custom_resource_definition(KINDS[0])
    assert _versions(crd) == [("v1beta1", True, True), ("v1alpha", False, False)]
    assert crd.spec.conversion is not None
    assert crd.spec.conversion.strategy == "None"


def test_with_a_webhook_both_versions_are_served() -> None:
    service = ServiceReference(namespace="kube-system", name="webhooks", path="/convert")
    crd = custom_resource_definition(KINDS[0], WebhookConversion(service, ca_bundle=b"PEM"))
    assert _versions(crd) == [("v1beta1", True, True), ("v1alpha", True, False)]
    assert to_builtins(crd)["spec"]["conversion"] == {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {
                "service": {"namespace": "kube-system", "name": "webhooks", "path": "/convert"},
                "caBundle": "UEVN",
            },
            "conversionReviewVersions": ["v1"],
        },
    }


def test_a_kind_with_one_version_needs_no_webhook() -> None:
    for crd in crds(WebhookConversion("https://127.0.0.1/convert"))[1:]:
        assert crd["spec"]["conversion"] == {"strategy": "None"}


def test_crds_are_the_callers_own_to_change() -> None:
    crds()[0]["spec"]["versions"].clear()
    assert len(crds()[0]["spec"]["versions"]) == 2


def test_a_crd_survives_reading() -> None:
    for crd in crds():
        assert to_builtins(from_builtins(CustomResourceDefinition, crd)) == crd


def test_the_names_and_scopes_are_those_of_the_design() -> None:
    found = {crd["metadata"]["name"]: (crd["spec"]["scope"], crd["spec"]["names"]) for crd in crds()}
    short = {name: (scope, names.get("shortNames", [])) for name, (scope, names) in found.items()}
    assert short == {
        "nodenetworkconfigs.acn.azure.com": ("Namespaced", ["nnc"]),
        "clustersubnets.acn.azure.com": ("Namespaced", []),
        "networkclasses.networking.subnetes.io": ("Cluster", ["nc"]),
        "clusternetworks.networking.subnetes.io": ("Cluster", ["cn", "cns"]),
        "nodenetworks.networking.subnetes.io": ("Cluster", []),
        "networks.networking.subnetes.io": ("Namespaced", []),
        "network-attachment-definitions.k8s.cni.cncf.io": ("Namespaced", ["net-attach-def"]),
    }


def test_secondary_ips_are_one_atomic_map() -> None:
    schema = openapi_v3_schema(KINDS[0][0])["properties"]["spec"]["properties"]["secondaryIPs"]
    assert schema["x-kubernetes-map-type"] == "atomic"


@pytest.mark.parametrize("kind", KINDS[0], ids=lambda kind: kind.resource.version)
def test_both_versions_of_nnc_print_the_columns_that_users_know(kind: type[Object]) -> None:
    assert [column.name for column in kind.columns if not column.wide] == [
        "Allocated IPs",
        "NC Mode",
        "NC Version",
    ]
    assert [column.name for column in kind.columns if column.wide] == [
        "Requested IPs",
        "Availability Zone",
        "Subnet",
        "Subnet CIDR",
        "Subnet CIDR v6",
        "NC ID",
        "NC Type",
    ]


def test_importing_the_kinds_imports_neither_yaml_nor_a_socket() -> None:
    program = (
        "import sys, subnetes.api.crd; print({'yaml', 'aiohttp', 'asyncio', 'socket'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class _Untold(Object):
    """A kind with a field that no schema can carry."""

    resource = Resource("example.com", "v1", "Untold", "untolds")
    moment: msgspec.Raw = msgspec.Raw(b"")
    """Anything."""


def test_a_type_that_no_schema_can_carry_is_an_error() -> None:
    with pytest.raises(TypeError, match="no CRD schema can carry"):
        openapi_v3_schema(_Untold)

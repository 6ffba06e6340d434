"""`kubectl get nnc -o wide` in both versions: the columns that users of v1alpha know, and the same values."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.kubectl import Kubectl, manifest
from tests.harness.old_nncs import FieldNnc, collection, field_nncs
from tests.harness.rest import Rest
from tests.harness.two_versions import HUB, OLD, all_crds, converted_webhook
from tests.harness.widgets import install

pytestmark = [pytest.mark.real, pytest.mark.slow]  # kubectl is among the real binaries

NARROW = ["NAME", "ALLOCATED IPS", "NC MODE", "NC VERSION"]
WIDE = [
    *NARROW,
    "REQUESTED IPS",
    "AVAILABILITY ZONE",
    "SUBNET",
    "SUBNET CIDR",
    "SUBNET CIDR V6",
    "NC ID",
    "NC TYPE",
]


@pytest.fixture(scope="module", params=["embedded", "real"])
def kubectl(
    request: pytest.FixtureRequest, assets: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    kind = ControlPlane if request.param == "real" else Embedded
    with kind() as server, converted_webhook(tmp_path_factory.mktemp("webhook")) as webhook:
        rest = Rest(server.url, server.ca_file, server.token)
        for each in all_crds(webhook):
            install(rest, each)
        for nnc in sample().values():
            rest.post(collection(OLD), nnc.document).ok()
            rest.patch(f"{collection(OLD)}/{nnc.name}", {"spec": spec_of(nnc)}).ok()
            if nnc.status:
                rest.patch(f"{collection(OLD)}/{nnc.name}/status", {"status": nnc.status}).ok()
        yield Kubectl(assets / "kubectl", server.kubeconfig, tmp_path_factory.mktemp("cache"))


def sample() -> dict[str, FieldNnc]:
    """One of each shape."""
    return {each.shape: each for each in field_nncs(17)}


def spec_of(nnc: FieldNnc) -> dict[str, Any]:
    return {**nnc.document["spec"], **(nnc.applied["spec"] if nnc.applied else {})}


def table(kubectl: Kubectl, version: str, *words: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """The columns, and each row by the object's name."""
    kind = f"nodenetworkconfigs.{version}.acn.azure.com"
    done = kubectl.run("get", kind, "--namespace=kube-system", *words)
    assert done.code == 0, done
    head, *lines = done.stdout.splitlines()
    starts = [found.start() for found in re.finditer(r"(?<!\S)\S+(?: \S+)*", head)]
    names = [head[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    rows = {}
    for line in lines:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        rows[cells[0]] = dict(zip(names, cells, strict=True))
    return names, rows


@pytest.mark.parametrize("version", [OLD, HUB])
def test_the_columns_are_those_that_users_know(kubectl: Kubectl, version: str) -> None:
    assert table(kubectl, version)[0] == NARROW
    assert table(kubectl, version, "-o", "wide")[0] == WIDE


@pytest.mark.parametrize("version", [OLD, HUB])
@pytest.mark.parametrize("shape", ["plain", "v6", "overlay", "releasing", "emptied"])
def test_one_network_container_is_shown_as_it_is(kubectl: Kubectl, shape: str, version: str) -> None:
    nnc = sample()[shape]
    assert nnc.status is not None
    (nc,) = nnc.status["networkContainers"]
    row = table(kubectl, version, "-o", "wide")[1][nnc.name]
    requested = spec_of(nnc)["requestedIPCount"]
    held = "ipAssignments" in nc
    assert row == {
        "NAME": nnc.name,
        "ALLOCATED IPS": str(nnc.status["assignedIPCount"]) if held or version == OLD else "",
        "NC MODE": nc["assignmentMode"],
        "NC VERSION": str(nc["version"]),
        "REQUESTED IPS": str(requested) if version == OLD else f'{{"{nc["id"]}":{requested}}}',
        "AVAILABILITY ZONE": str(spec_of(nnc).get("availabilityZone", "")),
        "SUBNET": nc["subnetName"],
        "SUBNET CIDR": nc["subnetAddressSpace"],
        "SUBNET CIDR V6": nc.get("subnetAddressSpaceV6", ""),
        "NC ID": nc["id"],
        "NC TYPE": nc["type"],
    }


def test_several_network_containers_add_up_for_users_of_v1alpha(kubectl: Kubectl) -> None:
    nnc = sample()["three"]
    assert nnc.status is not None
    row = table(kubectl, OLD, "-o", "wide")[1][nnc.name]
    assert row["ALLOCATED IPS"] == row["REQUESTED IPS"] == str(nnc.status["assignedIPCount"])
    first = nnc.status["networkContainers"][0]
    for shown in (row, table(kubectl, HUB, "-o", "wide")[1][nnc.name]):
        assert (shown["NC ID"], shown["SUBNET"]) == (first["id"], first["subnetName"])


def test_the_short_name_and_both_versions_list_the_same_objects(kubectl: Kubectl) -> None:
    names = sorted(nnc.name for nnc in sample().values())
    for kind in ("nnc", f"nodenetworkconfigs.{OLD}.acn.azure.com", f"nodenetworkconfigs.{HUB}.acn.azure.com"):
        done = kubectl.run("get", kind, "--namespace=kube-system", "-o", "name")
        assert sorted(line.partition("/")[2] for line in done.stdout.split()) == names


def test_a_user_who_applies_in_v1alpha_is_read_in_v1beta1(kubectl: Kubectl) -> None:
    """Client-side, with kubectl's own annotation beside the one that carries."""
    nnc = sample()["two"]
    metadata = {"name": nnc.name, "namespace": "kube-system"}
    body = nnc.document | {"metadata": metadata, "spec": {"requestedIPCount": 50}}
    assert kubectl.run("apply", "-f", "-", stdin=manifest(body)).code == 0
    again = kubectl.run("apply", "-f", "-", stdin=manifest(body))
    assert again.stdout.endswith("unchanged\n"), again
    row = table(kubectl, HUB, "-o", "wide")[1][nnc.name]
    assert sum(json.loads(row["REQUESTED IPS"]).values()) == 50
    assert nnc.status is not None
    assert json.loads(row["REQUESTED IPS"]).keys() == {nc["id"] for nc in nnc.status["networkContainers"]}

"""Servers for the tests of this folder: the real kube-apiserver and the embedded one, one each a test run."""

import json
import ssl
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from tests.harness import kube_assets
from tests.harness.control_plane import ControlPlane
from tests.harness.embedded import Embedded
from tests.harness.kubectl import Kubectl, Pair, manifest
from tests.harness.rest import Rest
from tests.harness.twins import Twins
from tests.harness.widgets import collection, install, widget, widget_crd

OUR_CRDS = Path(__file__).parents[2] / "deploy" / "crds"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever stands on the real server, also through another fixture, is marked so."""
    for item in items:
        if "assets" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.real)


class Server(Protocol):
    """What a test needs to know of an API server, whichever it is."""

    name: str
    url: str
    token: str
    ca_file: Path
    kubeconfig: Path


@pytest.fixture(scope="session")
def assets() -> Path:
    """The real binaries, for a test that starts a control plane of its own."""
    try:
        return kube_assets.locate()
    except kube_assets.AssetsMissing as problem:
        pytest.skip(f"no real kube-apiserver: {problem}")


@pytest.fixture(scope="session")
def real(assets: Path) -> Iterator[ControlPlane]:
    with ControlPlane(assets) as plane:
        yield plane


@pytest.fixture(scope="session")
def embedded() -> Iterator[Embedded]:
    with Embedded() as server:
        yield server


@pytest.fixture(
    scope="session",
    params=["embedded", pytest.param("real", marks=pytest.mark.real)],
)
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def namespace(server: Server) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:10]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    _call(server, "POST", "/api/v1/namespaces", body)
    yield name
    _call(server, "DELETE", f"/api/v1/namespaces/{name}")


def _call(server: Server, method: str, path: str, body: object = None) -> None:
    request = urllib.request.Request(
        server.url + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cafile=str(server.ca_file))
    with urllib.request.urlopen(request, context=context, timeout=30):
        pass


def _rest(server: Server) -> Rest:
    return Rest(server.url, server.ca_file, server.token)


@pytest.fixture(scope="session")
def rest(server: Server) -> Rest:
    """A raw client, admin of the server."""
    return _rest(server)


@pytest.fixture(scope="session")
def _widget_kind(rest: Rest) -> None:
    install(rest, widget_crd())


@pytest.fixture
def widgets(_widget_kind: None, namespace: str) -> str:
    """The path of a fresh namespace's collection of the sample custom resource."""
    return collection(namespace)


@pytest.fixture(scope="session")
def _twins(real: ControlPlane, embedded: Embedded) -> Twins:
    twins = Twins(embedded=_rest(embedded), real=_rest(real))
    for each in (twins.embedded, twins.real):
        install(each, widget_crd())
    return twins


@pytest.fixture
def twins(_twins: Twins) -> Iterator[Twins]:
    """Both servers, with the sample custom resource and a namespace of the same name in each."""
    name = f"twins-{uuid.uuid4().hex[:8]}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    _twins.do("POST", "/api/v1/namespaces", body)
    yield replace(_twins, namespace=name)
    _twins.do("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="session")
def _pair(real: ControlPlane, embedded: Embedded, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    ours, theirs = (
        Kubectl(real.assets / "kubectl", server.kubeconfig, tmp_path_factory.mktemp(f"cache-{server.name}"))
        for server in (embedded, real)
    )
    for each in (ours, theirs):
        done = each.run("apply", "-f", str(OUR_CRDS))
        assert done.code == 0, done
        waited = each.run("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        assert waited.code == 0, waited
    return Pair(ours, theirs, "default")


@pytest.fixture
def kubectl(_pair: Pair, twins: Twins) -> Pair:
    """kubectl in a fresh namespace of both servers."""
    return Pair(_pair.embedded, _pair.real, twins.namespace)


@pytest.fixture
def made(kubectl: Pair) -> Pair:
    """The same with widget `a`."""
    kubectl.same(
        "apply", "-f", "-", stdin=manifest(widget("a", {"size": 4, "tags": ["x"]}, labels={"app": "web"}))
    )
    return kubectl

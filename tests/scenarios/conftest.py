"""A world for each story: on an embedded API server of its own, and, marked, on the shared real one."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from subnetes.api.crd import crds
from subnetes.apiserver.server import Config, Server
from tests.harness import kube_assets
from tests.harness.control_plane import ControlPlane
from tests.scenarios.parts import ApiServer
from tests.scenarios.world import World

CRDS = Path(__file__).parents[2] / "deploy" / "crds"


@pytest.fixture(scope="package")
def real_plane() -> Iterator[ControlPlane]:
    """A real kube-apiserver with our CRDs, and the garbage collector that every cluster has."""
    try:
        assets = kube_assets.locate()
    except kube_assets.AssetsMissing as problem:
        pytest.skip(f"no real kube-apiserver: {problem}")
    with ControlPlane(assets) as plane:
        plane.start_controller_manager()
        for arguments in (
            ["apply", "-f", str(CRDS)],
            ["wait", "--for=condition=Established", "--timeout=30s", "crd", "--all"],
        ):
            done = plane.kubectl(*arguments)
            assert done.returncode == 0, done.stderr
        yield plane


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because sockets' paths are; gone afterwards."""
    made = Path(tempfile.mkdtemp(prefix="world-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    if request.param == "real":
        plane: Any = request.getfixturevalue("real_plane")
        yield plane
        return
    async with Server(Config(data=None, crds=crds())) as embedded:
        yield embedded


@pytest.fixture
async def world(server: ApiServer, folder: Path) -> AsyncIterator[World]:
    """A world with DNC-RC in it. After the story the dust settles, and the invariants must hold."""
    async with World(server, folder, shared=isinstance(server, ControlPlane)) as made:
        await made.start_controller()
        yield made
        await made.check()


@pytest.fixture
async def bare_world(server: ApiServer, folder: Path) -> AsyncIterator[World]:
    """A world in which the story itself starts DNC-RC."""
    async with World(server, folder, shared=isinstance(server, ControlPlane)) as made:
        yield made
        await made.check()

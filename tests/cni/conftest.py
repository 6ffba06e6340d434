"""The executable with warnings as errors and a sanitizer, as the build ships it, and the fallback."""

import shutil
import subprocess
from pathlib import Path

import pytest

import hatch_build
from subnetes import cni
from tests.cni.execution import Forked, Plugin

SOURCES = Path(cni.__file__).parent
STRICT = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("cni") / "subnetes-ipam"
    sanitised = ("-fsanitize=undefined", "-fno-sanitize-recover=all", "-static-libubsan")
    for extra in (sanitised, ()):  # a system may have no sanitizer's library
        command = ["cc", *STRICT, *extra, "-o", str(made), str(SOURCES / "subnetes-ipam.c")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return Plugin(made)
    raise AssertionError(done.stderr)


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """On x86-64, with bare.c instead of a C library, which no sanitizer can do without."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    made = tmp_path_factory.mktemp("cni") / "subnetes-ipam"
    assert hatch_build.build(SOURCES, made)
    return Plugin(made)


@pytest.fixture(scope="session")
def fallback(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    made = tmp_path_factory.mktemp("cni") / "subnetes-ipam"
    shutil.copyfile(SOURCES / "fallback.py", made)
    made.chmod(0o755)
    return Forked(made)


@pytest.fixture(params=["native", "shipped", "fallback"])
def plugin(request: pytest.FixtureRequest) -> Plugin:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Plugin)
    return found

"""The builder of the real binaries, driven with a pretended `go`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import kube_assets

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ALL = {*kube_assets.REQUIRED, *kube_assets.OPTIONAL}

# Writes the output file in two halves, so that an interruption in between would leave half a binary.
PRETENDED_GO = """#!/bin/sh
if [ "$1" = mod ]; then
  printf 'go 1.26.0\\nreplace (\\n\\tk8s.io/api => ./staging/src/k8s.io/api\\n)\\n' >"$HERE/go.mod"
  printf '{"GoMod": "%s/go.mod"}' "$HERE"
  exit 0
fi
while [ "$1" != -o ]; do shift; done
echo "$2" >>"$HERE/builds"
printf '#!/bin/sh\\n' >"$2"
sleep "${BUILD_SECONDS:-0}"
printf 'echo whole\\n' >>"$2"
chmod +x "$2"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(PRETENDED_GO)
    go.chmod(0o755)
    changed = {
        "PATH": f"{go.parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HERE": str(tmp_path),
        "KUBEBUILDER_ASSETS": "",
    }
    return os.environ | changed


def build(environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.harness.kube_assets"]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def builds(folder: Path) -> list[str]:
    log = folder / "builds"
    return [Path(line).name for line in log.read_text().split()] if log.exists() else []


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def outputs(folder: Path) -> dict[str, str]:
    return {
        name: subprocess.run([folder / name], capture_output=True, text=True, check=True).stdout
        for name in ALL
    }


def test_two_builders_at_once_build_each_binary_once(tmp_path: Path, environment: dict[str, str]) -> None:
    both = [build(environment | {"BUILD_SECONDS": "0.2"}) for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert sorted(builds(tmp_path)) == sorted(ALL)
    assert set(outputs(Path(answers[0][0].strip())).values()) == {"whole\n"}


def test_an_interrupted_build_goes_on_where_it_stopped(tmp_path: Path, environment: dict[str, str]) -> None:
    first = build(environment | {"BUILD_SECONDS": "1"})
    eventually(lambda: len(builds(tmp_path)) == 2)  # one is done, the second is half written
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    second = build(environment)
    folder, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert builds(tmp_path).count(builds(tmp_path)[0]) == 1, "the finished one was built again"
    assert set(outputs(Path(folder.strip())).values()) == {"whole\n"}
    assert len(builds(tmp_path)) == len(ALL) + 1


def test_without_go_it_says_so(tmp_path: Path, environment: dict[str, str]) -> None:
    process = build(environment | {"PATH": "/nonexistent"})
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Go is not installed" in errors


def test_kubebuilder_assets_are_used_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in kube_assets.REQUIRED:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert kube_assets.ensure() == tmp_path
    (tmp_path / "etcd").unlink()
    with pytest.raises(kube_assets.AssetsMissing, match="etcd not in KUBEBUILDER_ASSETS"):
        kube_assets.ensure()

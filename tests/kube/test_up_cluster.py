"""What `subnetes up` runs around its API server: nodes with pools, bursts, and a second start."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kube.test_up import call, interrupt, up

pytestmark = pytest.mark.slow

NNCS = "/apis/acn.azure.com/v1beta1/namespaces/kube-system/nodenetworkconfigs"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


def subnetes(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "COLUMNS": "120"}
    command = [sys.executable, "-m", "subnetes.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def eventually(question: Callable[[], bool], patience: float = 60) -> None:
    deadline = time.monotonic() + patience
    while not question():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


def items(kubeconfig: Path, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = call(kubeconfig, "GET", path)["items"]
    return found


def granted(nnc: dict[str, Any]) -> dict[str, str]:
    containers = nnc.get("status", {}).get("networkContainers", [])
    return {ip["id"]: ip["address"] for nc in containers for ip in nc.get("secondaryIPs", [])}


def pools(kubeconfig: Path) -> dict[str, dict[str, str]]:
    return {nnc["metadata"]["name"]: granted(nnc) for nnc in items(kubeconfig, NNCS)}


def test_a_burst_is_followed_by_the_pools_and_cleared_again(tmp_path: Path) -> None:
    with up(f"--data-dir={tmp_path / 'data'}", "--nodes=2") as (process, kubeconfig):
        done = subnetes(kubeconfig, "demo", "burst", "--pods=40")
        assert done.returncode == 0, done.stderr
        assert "40 pods on 2 nodes had their IPs after" in done.stdout
        addresses = {pod["status"]["podIP"] for pod in items(kubeconfig, PODS)}
        assert len(addresses) == 40
        assert addresses <= {each for pool in pools(kubeconfig).values() for each in pool.values()}
        shown = [line.split() for line in subnetes(kubeconfig, "status").stdout.splitlines()]
        rows = {line[0]: line[1:] for line in shown if line}
        assert rows["sample"][:2] == ["10.240.0.0/22", "1021"]
        assert rows["node-1"][1:] == ["sample", "31", "31", "20"]
        assert rows["node-2"][1:] == ["sample", "31", "31", "20"]
        assert subnetes(kubeconfig, "demo", "clear").returncode == 0
        assert items(kubeconfig, PODS) == []
        assert "no pods of a burst" in subnetes(kubeconfig, "demo", "clear").stdout
        assert interrupt(process) == (0, "")


def test_old_clients_read_and_write_v1alpha(tmp_path: Path) -> None:
    old = NNCS.replace("v1beta1", "v1alpha")
    with up(f"--data-dir={tmp_path / 'data'}", "--nodes=1") as (process, kubeconfig):
        eventually(lambda: len(pools(kubeconfig)["node-1"]) == 15)
        (seen,) = items(kubeconfig, old)
        assert seen["spec"]["requestedIPCount"] == 15
        assert seen["status"]["scaler"]["batchSize"] == 16
        named = {each["name"] for nc in seen["status"]["networkContainers"] for each in nc["ipAssignments"]}
        assert named == pools(kubeconfig)["node-1"].keys()
        seen["spec"]["availabilityZone"] = 2
        call(kubeconfig, "PUT", f"{old}/node-1", seen)
        assert items(kubeconfig, NNCS)[0]["spec"]["availabilityZone"] == 2
        assert interrupt(process) == (0, "")


@pytest.mark.parametrize("how", ["asked to stop", pytest.param("killed", marks=pytest.mark.slow)])
def test_a_second_start_finds_nodes_pods_and_pools_as_they_were(tmp_path: Path, how: str) -> None:
    folder = f"--data-dir={tmp_path / 'data'}"
    with up(folder, "--nodes=2") as (process, kubeconfig):
        assert subnetes(kubeconfig, "demo", "burst", "--pods=10").returncode == 0
        before = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in items(kubeconfig, PODS)}
        held = pools(kubeconfig)
        if how == "killed":
            process.kill()
            process.communicate()
        else:
            interrupt(process)
    with up(folder, "--nodes=2") as (process, kubeconfig):
        assert {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in items(kubeconfig, PODS)} == before
        assert pools(kubeconfig) == held
        done = subnetes(kubeconfig, "demo", "burst", "--pods=30")
        assert done.returncode == 0, done.stderr
        addresses = [pod["status"]["podIP"] for pod in items(kubeconfig, PODS)]
        assert len(set(addresses)) == len(addresses) == 40
        assert interrupt(process) == (0, "")


@pytest.mark.slow
def test_with_fewer_nodes_the_others_are_taken_away(tmp_path: Path) -> None:
    folder = f"--data-dir={tmp_path / 'data'}"
    with up(folder, "--nodes=2") as (process, kubeconfig):
        assert subnetes(kubeconfig, "demo", "burst", "--pods=4").returncode == 0
        interrupt(process)
    with up(folder, "--nodes=1") as (_, kubeconfig):
        assert [node["metadata"]["name"] for node in items(kubeconfig, NODES)] == ["node-1"]
        assert {pod["spec"]["nodeName"] for pod in items(kubeconfig, PODS)} == {"node-1"}


def test_a_demo_on_a_cluster_without_simulated_nodes_says_so(tmp_path: Path) -> None:
    with up(f"--data-dir={tmp_path / 'data'}", "--nodes=0") as (_, kubeconfig):
        done = subnetes(kubeconfig, "demo", "burst")
        assert done.returncode == 1
        assert done.stderr == (
            "subnetes demo burst: this cluster has no simulated nodes; `subnetes up` starts some\n"
        )


def test_a_data_folder_too_deep_for_sockets_is_said_in_a_line(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    done = subnetes(tmp_path / "none", "up", "--port=0", f"--data-dir={deep}")
    assert done.returncode == 1
    assert "--data-dir" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_pods_that_get_no_ip_in_time_are_counted_with_the_reason(tmp_path: Path) -> None:
    with up(f"--data-dir={tmp_path / 'data'}", "--nodes=1") as (_, kubeconfig):
        done = subnetes(kubeconfig, "demo", "burst", "--pods=255", "--timeout=5")
        assert done.returncode == 1
        assert "of 255 pods have no IP after 5 s" in done.stderr
        assert len(items(kubeconfig, PODS)) == 255

"""The cluster's own promise: whatever happens to a run, nothing of it stays, and runs do not meet."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.harness import kube_assets, pause_image, runs
from tests.harness.cluster import Cluster, Setting
from tests.harness.machine import Machine, MachineFailed, first_processes
from tests.harness.rest import eventually
from tests.harness.runs import Run

pytestmark = pytest.mark.usefixtures("machine_is_fit")
ROOT = Path(__file__).parents[2]
PLAIN = Setting(nodes=1, ours=False)


class Traces:
    """What a cluster could leave on its host, beside processes and cgroups."""

    def __init__(self) -> None:
        self.links = {each.name for each in Path("/sys/class/net").iterdir()}
        self.mounts = set(Path("/proc/self/mounts").read_text().splitlines())

    def new_since(self, before: "Traces") -> list[str]:
        return sorted((self.links - before.links) | (self.mounts - before.mounts))


def cgroups(containers: list[str]) -> list[Path]:
    return [each for name in containers for each in runs.CGROUPS.glob(f"**/k8s.io/{name}")]


def namespaces(init: Path) -> set[str]:
    return {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in first_processes(init)}


def run_pods(cluster: Cluster, count: int) -> None:
    image = f"--image={pause_image.NAME}"
    cluster.kubectl("create", "deployment", "web", image, f"--replicas={count}")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")


def test_pods_run_and_nothing_stays() -> None:
    before = Traces()
    with Cluster(PLAIN) as cluster:
        run_pods(cluster, 2)
        folder, init, containers = cluster.run.folder, cluster.run.init, cluster.run.containers()
        assert len(containers) == len(cgroups(containers)) / len(hierarchies()) == 4, "two pods, two each"
        assert len(namespaces(init)) == 2, "the control plane's and the node's"
    assert not folder.exists()
    assert not first_processes(init)
    assert cgroups(containers) == []
    assert Traces().new_since(before) == []


def hierarchies() -> set[Path]:
    return {each.parent for each in runs.CGROUPS.glob("**/k8s.io")}


KILLED = """
import os, signal
from tests.cluster.test_harness import PLAIN, run_pods
from tests.harness.cluster import Cluster
with Cluster(PLAIN) as cluster:
    run_pods(cluster, 2)
    print(cluster.run.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_is_killed_takes_its_machines_with_it_and_the_next_run_removes_the_rest() -> None:
    before = Traces()
    done = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    run = Run(Path(done.stdout.strip()))
    eventually(lambda: first_processes(run.init), lambda alive: alive == [], patience=20)
    containers = run.containers()
    assert cgroups(containers), "all that stays, and the folder that tells which they are"
    assert run.folder.name in runs.remove_abandoned()
    assert not run.folder.exists()
    assert cgroups(containers) == []
    assert Traces().new_since(before) == []


def test_a_start_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in kube_assets.locate().iterdir():
        (tmp_path / each.name).symlink_to(each)
    (tmp_path / "kubelet").unlink()
    (tmp_path / "kubelet").write_text("#!/bin/sh\necho no kubelet today; exit 7\n")
    (tmp_path / "kubelet").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    before, folders = Traces(), {each.folder for each in runs.runs()}
    with pytest.raises(MachineFailed, match="no kubelet today"), Cluster(PLAIN):
        pass
    assert {each.folder for each in runs.runs()} <= folders
    assert Traces().new_since(before) == []


def test_two_runs_at_once_do_not_meet() -> None:
    """Same addresses, same device names; and the second does not take the first for a dead one."""
    one, two = Run.create(), Run.create()
    try:
        machines = []
        for run in (one, two):
            pause_image.compile_program(run.init)
            machine = run.machine("m")
            machine.network("ip", "link", "add", "br0", "type", "bridge")
            machine.network("ip", "addr", "add", "10.250.0.1/24", "dev", "br0")
            machines.append(machine)
        assert runs.remove_abandoned() == []
        assert len(first_processes(one.init)) == len(first_processes(two.init)) == 1
        one.remove()
        assert first_processes(two.init) == [machines[1].pid]
    finally:
        for run in (one, two):
            if run.folder.exists():
                run.remove()


def test_a_daemon_that_left_its_parent_ends_with_its_machine() -> None:
    """As containerd's shims do: they outlive their runtime on purpose."""
    run = Run.create()
    try:
        pause_image.compile_program(run.init)
        machine = run.machine("m")
        machine.run("sh", "-c", "setsid sleep 3600 >/dev/null 2>&1 &")
        (daemon,) = eventually(lambda: _sleepers(machine))
    finally:
        run.remove()
    eventually(lambda: not _runs(daemon))  # who adopted it may take a while to bury it


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _sleepers(machine: Machine) -> list[int]:
    namespace = str(Path(f"/proc/{machine.pid}/ns/net").readlink())
    found = []
    for each in Path("/proc").iterdir():
        try:
            if (each / "comm").read_text() == "sleep\n" and str((each / "ns/net").readlink()) == namespace:
                found.append(int(each.name))
        except (OSError, ValueError):
            continue
    return found


def test_without_root_it_says_so() -> None:
    script = textwrap.dedent(
        """
        import os
        from tests.harness.cluster import main
        os.setuid(65534)
        raise SystemExit(main(["up"]))
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "needs root" in done.stderr

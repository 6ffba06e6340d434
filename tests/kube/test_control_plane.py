"""The harness itself: what a test run starts cannot outlive it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.harness.control_plane import ControlPlane

ROOT = Path(__file__).parents[2]
PROGRAM = """
import time
from tests.harness.control_plane import ControlPlane
with ControlPlane() as plane:
    print(plane.folder, *plane.processes().values(), flush=True)
    time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_nothing_runs_on_when_the_test_run_is_killed(real: ControlPlane) -> None:
    run = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    folder, *ids = run.stdout.readline().split()
    pids = [int(each) for each in ids]
    try:
        assert len(pids) == 2
        assert all(map(alive, pids))
        run.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while any(map(alive, pids)):
            assert time.monotonic() < deadline, "a server outlived the test run"
            time.sleep(0.05)
    finally:
        run.kill()
        run.communicate()
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", folder], check=True)


def test_roles_are_enforced(real: ControlPlane) -> None:
    refused = real.kubectl("get", "nodes", "--token", real.users["alice"].token)
    assert 'User "alice" cannot list resource "nodes"' in refused.stderr
    assert real.kubectl("get", "nodes").returncode == 0

"""The sweep: it frees what is surely lost, and never a sandbox that lives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subnetes.cns.namespaces import HostNamespaces, is_gone, seen
from subnetes.cns.reconciliation import LOST
from subnetes.cns.sweep import ContainerdSandboxes, Sandboxes, Sweep, UnknownSandboxes
from subnetes.ipam.pool import Holder


class Runtime:
    def __init__(self, *living: str) -> None:
        self.living = set(living)

    def lives(self, holder: Holder) -> bool | None:
        return holder.container_id in self.living


class Api:
    def __init__(self) -> None:
        self.answer: bool | None = False
        self.asked = 0

    async def __call__(self, _: Holder) -> bool | None:
        self.asked += 1
        return self.answer


def sweep(sandboxes: Sandboxes | None = None, api: Api | None = None) -> Sweep:
    return Sweep(HostNamespaces(), sandboxes or UnknownSandboxes(), api or Api())


def attached(path: Path) -> Holder:
    path.touch()
    return seen(Holder("c1", "eth0", netns=str(path)), HostNamespaces())


async def test_a_namespace_that_is_missing_twice_in_a_row_is_lost(tmp_path: Path) -> None:
    holder, sweeping = attached(tmp_path / "ns"), sweep()
    assert await sweeping.run([holder], 0) == []
    (tmp_path / "ns").unlink()
    assert await sweeping.run([holder], 30) == []
    assert await sweeping.run([holder], 60) == [holder]


async def test_one_that_is_seen_again_in_between_is_not_lost(tmp_path: Path) -> None:
    holder, sweeping = attached(tmp_path / "ns"), sweep()
    (tmp_path / "ns").rename(tmp_path / "away")
    assert await sweeping.run([holder], 0) == []
    (tmp_path / "away").rename(tmp_path / "ns")
    assert await sweeping.run([holder], 30) == []
    (tmp_path / "ns").rename(tmp_path / "away")
    assert await sweeping.run([holder], 60) == []


async def test_another_namespace_under_the_same_name_is_not_it(tmp_path: Path) -> None:
    holder, sweeping = attached(tmp_path / "ns"), sweep()
    (tmp_path / "other").touch()
    (tmp_path / "other").rename(tmp_path / "ns")
    assert await sweeping.run([holder], 0) == []
    assert await sweeping.run([holder], 30) == [holder]


async def test_what_the_agent_cannot_see_is_not_gone(tmp_path: Path) -> None:
    folder = tmp_path / "netns"
    folder.mkdir()
    holder = attached(folder / "ns")
    (folder / "ns").unlink()
    assert is_gone(holder, HostNamespaces())
    folder.rmdir()  # as if the runtime's folder were not mounted here any more
    assert not is_gone(holder, HostNamespaces())
    never_seen = seen(Holder("c1", "eth0", netns=str(tmp_path / "x")), HostNamespaces())
    assert not is_gone(never_seen, HostNamespaces())


async def test_without_a_namespace_the_pod_is_absent_five_minutes_and_the_runtime_has_no_sandbox() -> None:
    holder, api, runtime = Holder("c1", "eth0", pod_name="a"), Api(), Runtime()
    sweeping = sweep(runtime, api)
    assert await sweeping.run([holder], 0) == []
    assert await sweeping.run([holder], 299) == []
    assert await sweeping.run([holder], 300) == [holder]
    api.answer = True
    assert await sweep(runtime, api).run([holder], 0) == []


async def test_absence_starts_over_when_the_pod_or_its_sandbox_is_seen_or_nobody_answers() -> None:
    holder = Holder("c1", "eth0", pod_name="a")
    for spoil in ("pod", "silence", "sandbox"):
        api, runtime = Api(), Runtime()
        sweeping = sweep(runtime, api)
        await sweeping.run([holder], 0)
        api.answer = {"pod": True, "silence": None}.get(spoil, False)
        runtime.living = {"c1"} if spoil == "sandbox" else set()
        await sweeping.run([holder], 200)
        api.answer, runtime.living = False, set()
        assert await sweeping.run([holder], 310) == []
        assert await sweeping.run([holder], 610) == [holder]


async def test_an_api_server_that_does_not_answer_is_asked_once_a_sweep() -> None:
    """Each question may take half a minute, and what namespaces prove must not wait for all of them."""
    api = Api()
    api.answer = None
    await sweep(Runtime(), api).run([Holder(f"c{i}", "eth0", pod_name="a") for i in range(9)], 0)
    assert api.asked == 1


async def test_a_sandbox_that_lives_is_no_question_for_the_api_server() -> None:
    api = Api()
    await sweep(Runtime("c1"), api).run([Holder("c1", "eth0", pod_name="a")], 0)
    assert api.asked == 0


async def test_without_a_runtime_to_ask_nothing_is_lost() -> None:
    sweeping, holder = sweep(), Holder("c1", "eth0", pod_name="a")
    for now in range(0, 2000, 100):
        assert await sweeping.run([holder], float(now)) == []


async def test_a_sandbox_that_only_its_pod_is_known_of_goes_with_its_pod_and_all_its_sandboxes() -> None:
    holder, api, runtime = Holder(f"{LOST}uid", "eth0", pod_name="a"), Api(), Runtime()
    sweeping = sweep(runtime, api)
    await sweeping.run([holder], 0)
    assert await sweeping.run([holder], 299) == []
    assert await sweeping.run([holder], 300) == [holder]
    runtime.living = {holder.container_id}
    for now in (600, 1000, 1400):
        assert await sweeping.run([holder], now) == []


async def test_what_the_runtime_says_lives_is_not_lost(tmp_path: Path) -> None:
    """An agent whose view of the runtime's folder is wrong must not free every pod's IP."""
    holder, sweeping = attached(tmp_path / "ns"), sweep(Runtime("c1"))
    (tmp_path / "ns").unlink()
    for now in (0, 30, 60):
        assert await sweeping.run([holder], now) == []


async def test_one_that_was_attached_anew_is_looked_at_anew(tmp_path: Path) -> None:
    holder, sweeping = attached(tmp_path / "ns"), sweep()
    (tmp_path / "ns").unlink()
    assert await sweeping.run([holder], 0) == []
    again = attached(tmp_path / "other")
    (tmp_path / "other").unlink()
    assert await sweeping.run([again], 30) == []


def test_a_namespace_and_the_plain_file_below_it_prove_nothing(tmp_path: Path) -> None:
    """Without mount propagation an agent sees the file; restarted, what is mounted on it."""
    holder = attached(tmp_path / "ns")
    (tmp_path / "ns").unlink()
    (tmp_path / "ns").symlink_to("/proc/self/ns/net")
    assert not is_gone(holder, HostNamespaces())
    really = seen(Holder("c1", "eth0", netns=str(tmp_path / "ns")), HostNamespaces())
    assert really.netns_inode == Path("/proc/self/ns/net").stat().st_ino
    (tmp_path / "ns").unlink()
    (tmp_path / "ns").touch()
    assert not is_gone(really, HostNamespaces())
    (tmp_path / "ns").unlink()
    assert is_gone(really, HostNamespaces())
    assert is_gone(holder, HostNamespaces())


def test_processes_of_another_pid_namespace_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Holder("c1", "eth0", netns="/proc/4194305/ns/net", netns_inode=7)
    monkeypatch.setattr("subnetes.cns.namespaces._FIRST_PROCESSES", Path("/proc/self/ns/pid").stat().st_ino)
    assert is_gone(gone, HostNamespaces())
    monkeypatch.setattr("subnetes.cns.namespaces._FIRST_PROCESSES", 1)
    assert not is_gone(gone, HostNamespaces())


def test_containerd_says_of_each_task_whose_pod_it_is(tmp_path: Path) -> None:
    tasks = tmp_path / "io.containerd.runtime.v2.task" / "k8s.io"
    runtime = ContainerdSandboxes(tmp_path)
    a, b = (Holder(f"{LOST}u", "eth0", pod_namespace="ns", pod_name=name) for name in "ab")
    assert runtime.lives(a) is None
    (tasks / "c1").mkdir(parents=True)
    assert runtime.lives(a) is None  # it cannot be read yet
    prefix = "io.kubernetes.cri.sandbox"
    said = {"ociVersion": "1", "annotations": {f"{prefix}-namespace": "ns", f"{prefix}-name": "a"}}
    (tasks / "c1" / "config.json").write_text(json.dumps(said))
    assert (runtime.lives(a), runtime.lives(b)) == (True, False)
    (tasks / "c2").mkdir()
    (tasks / "c2" / "config.json").write_text("{}")
    assert (runtime.lives(a), runtime.lives(b)) == (True, None)


def test_containerd_has_a_folder_for_each_task_that_runs(tmp_path: Path) -> None:
    tasks = tmp_path / "io.containerd.runtime.v2.task" / "k8s.io"
    assert ContainerdSandboxes(tmp_path).lives(Holder("c1", "eth0")) is None
    (tasks / "c1").mkdir(parents=True)
    assert ContainerdSandboxes(tmp_path).lives(Holder("c1", "eth0")) is True
    assert ContainerdSandboxes(tmp_path).lives(Holder("c2", "eth0")) is False
    assert ContainerdSandboxes(tmp_path).lives(Holder("../k8s.io", "eth0")) is None

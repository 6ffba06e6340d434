"""The sweep: it frees what is surely lost, and never a sandbox that lives."""

from __future__ import annotations

from pathlib import Path

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
    assert await sweeping.run([holder], 60) == [holder.key]


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
    assert await sweeping.run([holder], 30) == [holder.key]


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
    assert await sweeping.run([holder], 300) == [holder.key]
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
        assert await sweeping.run([holder], 610) == [holder.key]


async def test_a_sandbox_that_lives_is_no_question_for_the_api_server() -> None:
    api = Api()
    await sweep(Runtime("c1"), api).run([Holder("c1", "eth0")], 0)
    assert api.asked == 0


async def test_without_a_runtime_to_ask_nothing_is_lost() -> None:
    sweeping, holder = sweep(), Holder("c1", "eth0")
    for now in range(0, 2000, 100):
        assert await sweeping.run([holder], float(now)) == []


async def test_a_sandbox_that_only_its_pod_is_known_of_is_left_alone() -> None:
    sweeping, holder = sweep(Runtime()), Holder(f"{LOST}uid", "eth0")
    await sweeping.run([holder], 0)
    assert await sweeping.run([holder], 1000) == []


def test_containerd_has_a_folder_for_each_task_that_runs(tmp_path: Path) -> None:
    tasks = tmp_path / "io.containerd.runtime.v2.task" / "k8s.io"
    assert ContainerdSandboxes(tmp_path).lives(Holder("c1", "eth0")) is None
    (tasks / "c1").mkdir(parents=True)
    assert ContainerdSandboxes(tmp_path).lives(Holder("c1", "eth0")) is True
    assert ContainerdSandboxes(tmp_path).lives(Holder("c2", "eth0")) is False
    assert ContainerdSandboxes(tmp_path).lives(Holder("../k8s.io", "eth0")) is None

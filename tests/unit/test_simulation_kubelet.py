"""The simulated kubelet against an agent and an API server that the test plays."""

import asyncio
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from subnetes.api.core import Pod, PodSpecView, PodStatusView
from subnetes.api.meta import ObjectMetaView
from subnetes.kube.key import Key
from subnetes.simulation.kubelet import Kubelet
from subnetes.simulation.plugin import Plugin, PluginFailed
from subnetes.simulation.sandbox import Sandboxes

KEY = Key("default", "web")
Answer = Callable[[dict[str, str]], tuple[int, Any]]


@dataclass
class PlayedAgent:
    """Answers on a socket in the plugin's protocol, and remembers what it was asked."""

    socket: Path
    asked: list[dict[str, str]] = field(default_factory=list)
    configs: list[Any] = field(default_factory=list)
    answer: Answer = lambda _: (0, {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.9/24"}]})

    def commands(self) -> list[str]:
        return [each["CNI_COMMAND"] for each in self.asked]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.read()
        (length,) = struct.unpack(">I", data[:4])
        block = data[4 : 4 + length].decode().split("\0")[:-1]
        self.asked.append(dict(each.split("=", 1) for each in block))
        self.configs.append(msgspec.json.decode(data[4 + length :]))
        code, document = self.answer(self.asked[-1])
        writer.write(bytes([code]) + (msgspec.json.encode(document) if document else b""))
        writer.close()


@dataclass
class PlayedServer:
    patches: list[Any] = field(default_factory=list)
    deletions: list[dict[str, Any]] = field(default_factory=list)

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str, *, subresource: str) -> None:
        assert (name, namespace, subresource) == ("web", "default", "status")
        self.patches.append(patch.document)

    async def delete(self, kind: Any, name: str, namespace: str, **options: Any) -> None:
        self.deletions.append(options)


@pytest.fixture
async def agent() -> AsyncIterator[PlayedAgent]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        played = PlayedAgent(Path(folder) / "cns.sock")
        server = await asyncio.start_unix_server(played.serve, played.socket)
        yield played
        server.close()


@pytest.fixture
def server() -> PlayedServer:
    return PlayedServer()


@pytest.fixture
def kubelet(agent: PlayedAgent, server: PlayedServer) -> Kubelet:
    api: Any = server
    return Kubelet(api, "node-1", Plugin(agent.socket), Sandboxes(agent.socket.parent / "sandboxes", "boot"))


def pod(uid: str = "uid-1", **metadata: Any) -> Pod:
    return Pod(
        metadata=ObjectMetaView(name="web", namespace="default", uid=uid, **metadata),
        spec=PodSpecView(node_name="node-1"),
        status=PodStatusView(phase="Pending"),
    )


async def test_a_scheduled_pod_gets_a_sandbox_and_its_status_says_the_address(
    kubelet: Kubelet, agent: PlayedAgent, server: PlayedServer
) -> None:
    kubelet.pods.store.put(pod())
    await kubelet.reconcile(KEY)
    (sandbox,) = kubelet.sandboxes.of(KEY)
    (asked,) = agent.asked
    assert (asked["CNI_COMMAND"], asked["CNI_CONTAINERID"]) == ("ADD", sandbox.id)
    assert Path(asked["CNI_NETNS"]).exists()
    assert "K8S_POD_NAME=web" in asked["CNI_ARGS"].split(";")
    assert "K8S_POD_UID=uid-1" in asked["CNI_ARGS"].split(";")
    assert agent.configs[0]["ipam"] == {"type": "subnetes-ipam"}
    (patch,) = server.patches
    assert patch["status"]["podIPs"] == [{"ip": "10.0.0.9"}]
    assert patch["metadata"] == {"uid": "uid-1"}


async def test_a_pod_that_runs_is_left_alone(kubelet: Kubelet, agent: PlayedAgent) -> None:
    kubelet.pods.store.put(pod())
    await kubelet.reconcile(KEY)
    await kubelet.reconcile(KEY)
    assert agent.commands() == ["ADD"]


async def test_a_deleted_pod_is_finished_after_its_sandbox(
    kubelet: Kubelet, agent: PlayedAgent, server: PlayedServer
) -> None:
    kubelet.pods.store.put(pod())
    await kubelet.reconcile(KEY)
    kubelet.pods.store.put(pod(deletion_timestamp="2026-01-01T00:00:00Z"))
    await kubelet.reconcile(KEY)
    assert agent.commands() == ["ADD", "DEL"]
    assert not Path(agent.asked[0]["CNI_NETNS"]).exists()
    assert server.deletions == [{"uid": "uid-1", "grace_seconds": 0}]


async def test_the_deletion_is_not_finished_while_the_agent_refuses_del(
    kubelet: Kubelet, agent: PlayedAgent, server: PlayedServer
) -> None:
    kubelet.pods.store.put(pod())
    await kubelet.reconcile(KEY)
    agent.answer = lambda _: (1, {"code": 11, "msg": "not now"})
    kubelet.pods.store.put(pod(deletion_timestamp="2026-01-01T00:00:00Z"))
    result = await kubelet.reconcile(KEY)
    assert result is not None
    assert result.requeue_after is not None
    assert server.deletions == []
    assert len(kubelet.sandboxes.of(KEY)) == 1


async def test_a_failed_add_is_cleaned_up_and_tried_with_another_sandbox(
    kubelet: Kubelet, agent: PlayedAgent, server: PlayedServer
) -> None:
    kubelet.pods.store.put(pod())
    refused = {"code": 11, "msg": "no IP"}
    agent.answer = lambda asked: (1, refused) if asked["CNI_COMMAND"] == "ADD" else (0, None)
    assert await kubelet.reconcile(KEY) is not None
    assert agent.commands() == ["ADD", "DEL"]
    assert kubelet.sandboxes.of(KEY) == []
    assert server.patches == []
    agent.answer = PlayedAgent.answer
    assert await kubelet.reconcile(KEY) is None
    assert agent.asked[0]["CNI_CONTAINERID"] != agent.asked[2]["CNI_CONTAINERID"]


async def test_a_pod_of_the_same_name_gets_its_own_sandbox(kubelet: Kubelet, agent: PlayedAgent) -> None:
    kubelet.pods.store.put(pod())
    await kubelet.reconcile(KEY)
    kubelet.pods.store.put(pod(uid="uid-2"))
    await kubelet.reconcile(KEY)
    assert agent.commands() == ["ADD", "DEL", "ADD"]
    assert [each.pod_uid for each in kubelet.sandboxes.of(KEY)] == ["uid-2"]


async def test_an_agent_that_is_away_is_said_so(agent: PlayedAgent) -> None:
    nowhere = agent.socket.with_name("nobody.sock")
    with pytest.raises(PluginFailed, match="no agent at"):
        await Plugin(nowhere).status()


def test_sandboxes_are_found_again_within_the_boot_and_not_after_it(tmp_path: Path) -> None:
    made = Sandboxes(tmp_path, "boot").make(KEY, "uid-1")
    (tmp_path / "torn").write_text('{"id": "x')
    assert Sandboxes(tmp_path, "boot").of(KEY) == [made]
    assert not (tmp_path / "torn").exists()
    assert Sandboxes(tmp_path, "next boot").all() == []
    assert list(tmp_path.iterdir()) == []

"""The sandboxes of a simulated node: each is one file, which stands for its network namespace.

The agent's sweep finds a sandbox dead when its namespace's path is gone, here as on a real node. The file
also holds what the kubelet knows of the sandbox, so that a kubelet that restarts finds its pods; like real
namespaces, sandboxes do not outlive a boot of the machine.
"""

import uuid
from pathlib import Path

import msgspec

from subnetes.kube.key import Key


class Sandbox(msgspec.Struct, frozen=True):
    id: str
    netns: str
    pod_namespace: str
    pod_name: str
    pod_uid: str
    boot: str
    addresses: list[str] = []

    @property
    def pod(self) -> Key:
        return Key(self.pod_namespace, self.pod_name)


class Sandboxes:
    """Those of one node, in a folder."""

    def __init__(self, folder: Path, boot: str) -> None:
        self._folder = folder
        self._boot = boot
        self._by_pod: dict[Key, dict[str, Sandbox]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            self._find(path)

    def of(self, pod: Key) -> list[Sandbox]:
        return list(self._by_pod.get(pod, {}).values())

    def all(self) -> list[Sandbox]:
        return [each for found in self._by_pod.values() for each in found.values()]

    def make(self, pod: Key, uid: str) -> Sandbox:
        name = uuid.uuid4().hex * 2  # 64 digits, as runtimes make them
        sandbox = Sandbox(name, str(self._folder / name), pod.namespace, pod.name, uid, self._boot)
        return self.keep(sandbox)

    def keep(self, sandbox: Sandbox) -> Sandbox:
        """Write what is known of it; a reader sees the old or the new text, and the path is never missing."""
        path = Path(sandbox.netns)
        if path.exists():
            path.write_bytes(msgspec.json.encode(sandbox))  # in place: a namespace keeps its inode
        else:
            _write_whole(path, msgspec.json.encode(sandbox))
        self._by_pod.setdefault(sandbox.pod, {})[sandbox.id] = sandbox
        return sandbox

    def end(self, sandbox: Sandbox) -> None:
        Path(sandbox.netns).unlink(missing_ok=True)
        found = self._by_pod.get(sandbox.pod, {})
        found.pop(sandbox.id, None)
        if not found:
            self._by_pod.pop(sandbox.pod, None)

    def _find(self, path: Path) -> None:
        sandbox = _read(path)
        if sandbox is not None and sandbox.boot == self._boot and sandbox.netns == str(path):
            self._by_pod.setdefault(sandbox.pod, {})[sandbox.id] = sandbox
        else:
            path.unlink()  # of an earlier boot, or cut short by a crash: its pod gets another


def _read(path: Path) -> Sandbox | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Sandbox)
    except msgspec.MsgspecError:
        return None


def _write_whole(path: Path, data: bytes) -> None:
    beside = path.with_name(f".{path.name}")
    beside.write_bytes(data)
    beside.rename(path)

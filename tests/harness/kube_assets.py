"""The real Kubernetes binaries that tests and benchmarks stand on.

`locate()` answers where etcd, kube-apiserver and kubectl are: `KUBEBUILDER_ASSETS` if set (envtest's
convention), else a cache outside the clone, keyed by version. The cache also holds what a whole cluster
needs: scheduler, controller-manager, kubelet, containerd and the reference CNI plugins.
`python3 -m tests.harness.kube_assets` (make kube-assets) builds what the cache lacks from Go modules:
nobody publishes current binaries where every machine may fetch them, but `k8s.io/kubernetes` is a module
like any other once its staging replacements point at the matching `v0.x` releases.

A binary appears by rename, so an interrupted build leaves no half of one and the next run goes on where it
stopped; a lock makes a second builder wait for the first instead of doing the work again.

Only the standard library is used: this runs before the project's environment exists.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
REQUIRED = ("etcd", "kube-apiserver", "kubectl")
CONTAINERD = "2.4.2"
CNI = "1.3.1"
PLUGINS = "1.9.1"
# not in envtest's set: what garbage collection is compared with, and what makes a node
OPTIONAL = (
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "loopback",
    "bridge",
    "host-local",
    "cnitool",
)


class AssetsMissing(Exception):
    """The binaries are not there and cannot be built here; the text says why."""


@dataclass(frozen=True)
class Binary:
    name: str
    package: str
    go_mod: str
    ldflags: str = ""


def cache_dir() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "subnetes" / f"kube-{KUBERNETES}-etcd-{ETCD}"


def locate() -> Path:
    """The folder that holds the required binaries, without building anything."""
    configured = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(configured) if configured else cache_dir()
    missing = [name for name in REQUIRED if not os.access(folder / name, os.X_OK)]
    if not missing:
        return folder
    where = "KUBEBUILDER_ASSETS" if configured else "the cache"
    raise AssetsMissing(f"{', '.join(missing)} not in {where} ({folder}); run `make kube-assets`")


def ensure() -> Path:
    """The same folder, built first where it is incomplete."""
    if os.environ.get("KUBEBUILDER_ASSETS"):
        return locate()
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if not _absent(folder):
        return folder
    go = shutil.which("go")
    if go is None:
        raise AssetsMissing("Go is not installed, so kube-apiserver and etcd cannot be built")
    with _only_builder(folder):
        absent = _absent(folder)
        if absent:
            _build(go, folder, absent)
    return folder


def _absent(folder: Path) -> list[str]:
    return [name for name in REQUIRED + OPTIONAL if not os.access(folder / name, os.X_OK)]


@contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process is building into {folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in folder.glob(".build-*"):  # of a builder that was killed
            shutil.rmtree(stale, ignore_errors=True)
        yield


def _build(go: str, folder: Path, absent: list[str]) -> None:
    _say(f"building {', '.join(absent)} into {folder} (about ten minutes on two cores for all, once)")
    environment = os.environ | {"GOFLAGS": "-mod=mod -buildvcs=false -trimpath"}
    binaries = [b for b in _binaries(go, environment) if b.name in absent]
    for number, binary in enumerate(binaries, 1):
        label = f"[{number}/{len(binaries)}] {binary.name}"
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
            work = Path(scratch)
            (work / "go.mod").write_text(binary.go_mod)
            command = [go, "build", "-ldflags", f"-s -w {binary.ldflags}", "-o", f"{work / binary.name}"]
            seconds = _run_showing_progress([*command, binary.package], work, environment, label)
            (work / binary.name).replace(folder / binary.name)
        _say(f"{label}: built in {seconds:.0f} s")


def _binaries(go: str, environment: dict[str, str]) -> list[Binary]:
    major, minor, _ = KUBERNETES.split(".")
    variable = "k8s.io/component-base/version.git"
    version = f"-X {variable}Version=v{KUBERNETES} -X {variable}Major={major} -X {variable}Minor={minor}"
    kube_mod = _kubernetes_go_mod(go, environment)
    etcd_mod = _go_mod("etcd", "go 1.26.0", f"go.etcd.io/etcd/server/v3 v{ETCD}")
    commands = ("kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kubelet")
    return [
        Binary("etcd", "go.etcd.io/etcd/server/v3", etcd_mod),
        *(Binary(c, f"k8s.io/kubernetes/cmd/{c}", kube_mod, version) for c in commands),
        *_runtime_binaries(),
        *_cni_binaries(),
    ]


def _runtime_binaries() -> list[Binary]:
    module = "github.com/containerd/containerd/v2"
    go_mod = _go_mod("containerd", "go 1.26.0", f"{module} v{CONTAINERD}")
    version = f"-X {module}/version.Version=v{CONTAINERD}"
    commands = ("containerd", "containerd-shim-runc-v2", "ctr")
    return [Binary(c, f"{module}/cmd/{c}", go_mod, version) for c in commands]


def _cni_binaries() -> list[Binary]:
    home = "github.com/containernetworking"
    go_mod = _go_mod("cni", "go 1.26.0", f"(\n {home}/cni v{CNI}\n {home}/plugins v{PLUGINS}\n)")
    plugins = ("main/loopback", "main/bridge", "ipam/host-local")
    return [
        Binary("cnitool", f"{home}/cni/cnitool", go_mod),
        *(Binary(p.rpartition("/")[2], f"{home}/plugins/plugins/{p}", go_mod) for p in plugins),
    ]


def _kubernetes_go_mod(go: str, environment: dict[str, str]) -> str:
    """A throw-away module whose staging replacements are releases, not folders of the monorepo."""
    command = [go, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout or "{}")
    if done.returncode or "GoMod" not in answer:
        raise AssetsMissing(f"k8s.io/kubernetes cannot be downloaded: {answer.get('Error', done.stderr)}")
    upstream = Path(answer["GoMod"]).read_text()
    go_line = re.search(r"^go .*$", upstream, re.MULTILINE)
    assert go_line is not None
    staging = re.findall(r"^\s+(k8s\.io/\S+) => \./staging/", upstream, re.MULTILINE)
    release = "v0." + KUBERNETES.partition(".")[2]
    replaces = "\n".join(f"replace {module} => {module} {release}" for module in staging)
    return _go_mod("kube", go_line[0], f"k8s.io/kubernetes v{KUBERNETES}") + replaces + "\n"


def _go_mod(name: str, go_line: str, requirement: str) -> str:
    return f"module assets.local/{name}\n\n{go_line}\n\nrequire {requirement}\n\n"


def _run_showing_progress(command: list[str], cwd: Path, environment: dict[str, str], label: str) -> float:
    started = time.monotonic()
    log = cwd / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=cwd, env=environment, stdout=output, stderr=output)
        try:
            while True:
                try:
                    process.wait(timeout=15)
                    break
                except subprocess.TimeoutExpired:
                    _say(f"{label}: {time.monotonic() - started:.0f} s so far")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        raise AssetsMissing(f"{label} failed to build:\n{log.read_text()[-4000:]}")
    return time.monotonic() - started


def _say(text: str) -> None:
    print(f"kube-assets: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(ensure())
    except AssetsMissing as problem:
        sys.exit(f"kube-assets: {problem}")

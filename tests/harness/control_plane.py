"""A real etcd and kube-apiserver on loopback: RBAC on, an admin, restricted users.

Started in about five seconds, once a test run (see tests/kube/conftest.py), or privately by a test that wants
to kill it. Every process dies with us, however we die (see processes.py).
"""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness import kube_assets
from tests.harness.certificates import Authority, private_pem, public_pem
from tests.harness.processes import Child, free_ports, start

USERS = {  # token = name; who they are decides what RBAC lets them do
    "admin": ["system:masters"],
    "alice": [],  # authenticated, with no rights but what a test grants
    "bob": [],
    "system:node:a": ["system:nodes"],  # as kubelets, and agents with their credentials, are known
    "system:node:b": ["system:nodes"],
    "system:serviceaccount:kube-system:subnetes-controller": ["system:serviceaccounts"],
    "system:serviceaccount:kube-system:subnetes-webhook": ["system:serviceaccounts"],
}


@dataclass(frozen=True)
class User:
    name: str
    token: str
    kubeconfig: Path


class ControlPlane:
    """Where it is, who may enter, and how to hurt it."""

    name = "real"

    def __init__(
        self, assets: Path | None = None, extra_flags: Sequence[str] = (), etcd_flags: Sequence[str] = ()
    ) -> None:
        self.assets = assets or kube_assets.locate()
        self.folder = Path(tempfile.mkdtemp(prefix="subnetes-kube-"))
        self.extra_flags = list(extra_flags)
        self.etcd_flags = list(etcd_flags)
        self.port, self.etcd_port, self.etcd_peer_port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.authority = Authority.create(self.folder)
        self.ca_file = self.authority.file
        self.users = {name: User(name, name, self._write_kubeconfig(name)) for name in USERS}
        self.token = self.users["admin"].token
        self.kubeconfig = self.users["admin"].kubeconfig
        self._etcd: Child | None = None
        self._apiserver: Child | None = None
        self._controllers: Child | None = None

    def __enter__(self) -> ControlPlane:
        try:
            self._write_secrets()
            self._start_etcd()
            self.start_apiserver()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for child in (self._controllers, self._apiserver, self._etcd):
            if child is not None:
                child.kill()
        self._controllers = self._apiserver = self._etcd = None
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"

    def processes(self) -> dict[str, int]:
        """The ids of what runs, for those who measure it."""
        named = {"etcd": self._etcd, "kube-apiserver": self._apiserver}
        return {name: child.process.pid for name, child in named.items() if child is not None}

    def start_apiserver(self) -> None:
        server = self.authority.folder / "kube-apiserver"
        command = [
            str(self.assets / "kube-apiserver"),
            f"--etcd-servers={self.etcd_url}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={server}.crt",
            f"--tls-private-key-file={server}.key",
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",  # nobody here makes the accounts
            *self.extra_flags,
        ]
        self._apiserver = start(command, self.folder / "kube-apiserver.log")
        self.wait_until_ready()

    def kill_apiserver(self) -> None:
        """SIGKILL, as a machine that lost power would do it."""
        assert self._apiserver is not None
        self._apiserver.kill()

    def start_controller_manager(self) -> None:
        """Garbage collection and namespace deletion, which a real cluster has outside its API server."""
        if self._controllers is not None:
            return
        command = [
            str(self.assets / "kube-controller-manager"),
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=garbage-collector-controller,namespace-controller",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_ports(1)[0]}",
            f"--cert-dir={self.folder / 'controller-manager'}",
        ]
        self._controllers = start(command, self.folder / "kube-controller-manager.log")

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self.assets / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    def wait_until_ready(self, patience: float = 60) -> None:
        deadline = time.monotonic() + patience
        context = ssl.create_default_context(cafile=str(self.ca_file))
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"}
        )
        assert self._apiserver is not None
        while True:
            try:
                with urllib.request.urlopen(request, context=context, timeout=5):
                    return
            except (urllib.error.URLError, OSError) as problem:
                if self._apiserver.process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"kube-apiserver is not ready: {self._apiserver.tail()}") from problem
            time.sleep(0.1)

    def _start_etcd(self) -> None:
        peer = f"http://127.0.0.1:{self.etcd_peer_port}"
        command = [
            str(self.assets / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *self.etcd_flags,
        ]
        self._etcd = start(command, self.folder / "etcd.log")

    def _write_secrets(self) -> None:
        self.authority.issue("kube-apiserver")
        (self.folder / "sa.key").write_bytes(private_pem(self.authority.key))
        (self.folder / "sa.pub").write_bytes(public_pem(self.authority.key))
        lines = [f'{user},{user},{user},"{",".join(groups)}"' for user, groups in USERS.items()]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    def _write_kubeconfig(self, user: str) -> Path:
        path = self.folder / f"{user}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))  # JSON is YAML
        return path

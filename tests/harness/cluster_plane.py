"""The control plane of a test cluster, on a machine of its own: etcd, API server, scheduler, controllers.

The machine is also the switch: nodes hang on its bridge. From outside, the API is reached over a Unix socket
that `kubectl proxy` serves, for the addresses here mean nothing on the host.
"""

from __future__ import annotations

import http.client
import json
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.certificates import Authority, private_pem, public_pem
from tests.harness.machine import Machine, MachineFailed, Program

NETWORK = "10.250.0"
ADDRESS = f"{NETWORK}.1"
_SOCKET = "/run/api.sock"
_CONTROLLER = "system:serviceaccount:kube-system:subnetes-controller"
_MOST_NODES = 9  # tokens are read once, at the API server's start


class Plane:
    def __init__(self, machine: Machine, assets: Path) -> None:
        self.machine = machine
        self.assets = assets
        self.folder = machine.folder
        self._secrets = Authority.create(self.folder / "pki")

    def start(self) -> None:
        """Set the switch up and start etcd and the API server; `settle` waits for them."""
        for line in ("link add br0 type bridge", f"addr add {ADDRESS}/24 dev br0", "link set br0 up"):
            self.machine.network("ip", *line.split())
        self._write_secrets()
        self._start("etcd", **self._etcd_flags())
        self._apiserver = self._start("kube-apiserver", **self._apiserver_flags())

    def settle(self) -> None:
        """Wait for the API server and start what stands on it."""
        admin = self.kubeconfig("admin")
        proxy = ("proxy", f"--kubeconfig={admin}", f"--unix-socket={_SOCKET}")
        self.machine.start("kubectl-proxy", self.assets / "kubectl", *proxy)
        wait_for("the API server", self._ready, [self._apiserver])
        flex = {"flex_volume_plugin_dir": "/var/lib/volume-plugins"}  # by default it makes one on the host
        keys = {"service_account_private_key_file": self._pki("sa.key"), "root_ca_file": self._secrets.file}
        self._start("kube-controller-manager", kubeconfig=admin, leader_elect="false", **keys, **flex)
        self._start("kube-scheduler", kubeconfig=admin, leader_elect="false")

    def plug_in(self, node: Machine, number: int) -> str:
        """A cable from the node to the switch; the answer is the node's address."""
        address = f"{NETWORK}.{10 + number}"
        cable = f"link add p{number} type veth peer name eth0 netns {node.pid}"
        for line in (cable, f"link set p{number} master br0 up"):
            self.machine.network("ip", *line.split())
        for line in (f"addr add {address}/24 dev eth0", "link set eth0 up"):
            node.network("ip", *line.split())
        return address

    def kubeconfig(self, user: str) -> Path:
        path = self.folder / f"{user}.kubeconfig"
        cluster = {"server": f"https://{ADDRESS}:6443", "certificate-authority": str(self._secrets.file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": user}}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": user}}],
            "current-context": "cluster",
        }
        path.write_text(json.dumps(config))  # JSON is YAML
        return path

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One request as the cluster's admin."""
        connection = _Connection(self.machine.path(_SOCKET))
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiRefused(answer.status, said.decode(errors="replace"))
        return json.loads(said) if answer.headers.get_content_type() == "application/json" else said.decode()

    def _ready(self) -> bool:
        try:
            return bool(self.call("GET", "/readyz") == "ok")
        except (OSError, ApiRefused):
            return False

    def _start(self, name: str, **flags: object) -> Program:
        words = [f"--{flag.replace('_', '-')}={value}" for flag, value in flags.items()]
        return self.machine.start(name, self.assets / name, *words)

    def _etcd_flags(self) -> dict[str, str]:
        url = "http://127.0.0.1:2379"
        urls = {"listen_client_urls": url, "advertise_client_urls": url}
        return {"data_dir": "/var/lib/etcd", "unsafe_no_fsync": "true"} | urls

    def _apiserver_flags(self) -> dict[str, object]:
        return {
            "etcd_servers": "http://127.0.0.1:2379",
            "advertise_address": ADDRESS,
            "tls_cert_file": self._pki("kube-apiserver.crt"),
            "tls_private_key_file": self._pki("kube-apiserver.key"),
            "client_ca_file": self._secrets.file,
            "token_auth_file": self._pki("tokens.csv"),
            "authorization_mode": "Node,RBAC",
            "enable_admission_plugins": "NodeRestriction",
            "service_account_issuer": "https://kubernetes.default.svc",
            "service_account_key_file": self._pki("sa.pub"),
            "service_account_signing_key_file": self._pki("sa.key"),
            "service_cluster_ip_range": "10.96.0.0/16",
            "cert_dir": "/var/lib/kube-apiserver",
        }

    def _write_secrets(self) -> None:
        self._secrets.issue("kube-apiserver", addresses=("127.0.0.1", ADDRESS, "10.96.0.1"))
        self._pki("sa.key").write_bytes(private_pem(self._secrets.key))
        self._pki("sa.pub").write_bytes(public_pem(self._secrets.key))
        nodes = {f"node{n}": (f"system:node:node{n}", "system:nodes") for n in range(1, _MOST_NODES + 1)}
        users = {"admin": ("admin", "system:masters"), "controller": (_CONTROLLER, "system:serviceaccounts")}
        lines = [f"{token},{name},{token},{group}\n" for token, (name, group) in (users | nodes).items()]
        self._pki("tokens.csv").write_text("".join(lines))

    def _pki(self, name: str) -> Path:
        return self._secrets.folder / name


class ApiRefused(Exception):
    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"{code}: {said}")
        self.code = code


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def wait_for(what: str, question: Callable[[], bool], programs: list[Program], patience: float = 60) -> None:
    """Until the answer is yes; not longer than the programs live."""
    deadline = time.monotonic() + patience
    while not question():
        for program in programs:
            program.must_run()
        if time.monotonic() > deadline:
            logs = "\n".join(f"--- {each.log}\n{each.tail(1500)}" for each in programs)
            raise MachineFailed(f"{what}: not within {patience} s\n{logs}")
        time.sleep(0.1)


def is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False

"""Kubeconfig files become Credentials, by the rules of kubectl. Pure: dictionaries in, a value out.

`sources.py` reads the files. Of several files the first to say something wins: for the current context, and
for every cluster, user and context by name, whole. Relative paths are relative to the file that names them.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subnetes.kube.credentials import (
    Authentication,
    Basic,
    ClientCertificate,
    Credentials,
    ExecPlugin,
    Pem,
    Tls,
    Token,
    TokenFile,
)
from subnetes.kube.errors import CredentialsError
from subnetes.kube.proxies import proxy_from, proxy_of

EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster, user or context, and the folder that its relative paths start from."""

    label: str
    value: Mapping[str, Any]
    folder: Path

    def text(self, key: str) -> str:
        value = self.value.get(key) or ""
        if not isinstance(value, str):
            raise CredentialsError(f"kubeconfig: {key} of {self.label} must be a string")
        return value

    def path(self, key: str) -> Path | None:
        return self.folder / self.text(key) if self.text(key) else None

    def pem(self, key: str) -> Pem | None:
        """`<key>-data` in the file itself before the file that `<key>` names."""
        data = self.text(f"{key}-data")
        if not data:
            return self.path(key)
        try:
            return b64decode(data, validate=True)
        except binascii.Error as problem:
            raise CredentialsError(f"kubeconfig: {key}-data of {self.label} is not base64") from problem


@dataclass(slots=True)
class Kubeconfig:
    """Several files as one."""

    current_context: str = ""
    clusters: dict[str, Entry] = field(default_factory=dict)
    users: dict[str, Entry] = field(default_factory=dict)
    contexts: dict[str, Entry] = field(default_factory=dict)


def merge(files: Iterable[tuple[Path, Any]]) -> Kubeconfig:
    """The files' parsed contents, each with the folder it lies in, the most important first."""
    merged = Kubeconfig()
    for folder, content in files:
        if not isinstance(content, dict):
            raise CredentialsError(f"kubeconfig: a file in {folder} is not a mapping")
        merged.current_context = merged.current_context or content.get("current-context") or ""
        for singular, entries in (
            ("cluster", merged.clusters),
            ("user", merged.users),
            ("context", merged.contexts),
        ):
            for name, value in _named(content.get(f"{singular}s"), singular):
                entries.setdefault(name, Entry(f"{singular} {name}", value, folder))
    return merged


def _named(items: Any, singular: str) -> list[tuple[str, Mapping[str, Any]]]:
    try:
        return [(item["name"], dict(item.get(singular) or {})) for item in items or []]
    except (TypeError, KeyError, AttributeError, ValueError) as problem:
        raise CredentialsError(f"kubeconfig: {singular}s must be a list of named {singular}s") from problem


def credentials_of(config: Kubeconfig, environ: Mapping[str, str], context: str | None = None) -> Credentials:
    """What the chosen context (the current one by default) says."""
    chosen = _find(config.contexts, context or config.current_context, "context")
    cluster = _find(config.clusters, chosen.text("cluster"), "cluster")
    user = _find(config.users, chosen.text("user"), "user") if chosen.text("user") else _NOBODY
    server = cluster.text("server")
    if not server:
        raise CredentialsError(f"kubeconfig: {cluster.label} has no server")
    proxy = cluster.text("proxy-url")
    return Credentials(
        server=server if "://" in server else f"https://{server}",
        authentication=_authentication(user, cluster),
        tls=_tls(cluster, user),
        proxy=proxy_of(proxy) if proxy else proxy_from(environ, server),
        impersonation=tuple(_impersonation(user)),
        namespace=chosen.text("namespace") or "default",
    )


_NOBODY = Entry("nobody", {}, Path())


def _find(entries: Mapping[str, Entry], name: str, what: str) -> Entry:
    if not name:
        raise CredentialsError(f"kubeconfig: no {what} is chosen")
    if name not in entries:
        raise CredentialsError(f"kubeconfig: there is no {what} {name}")
    return entries[name]


def _tls(cluster: Entry, user: Entry) -> Tls:
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if (certificate is None) != (key is None):
        raise CredentialsError(f"kubeconfig: {user.label} has a certificate without its key, or the reverse")
    return Tls(
        authority=cluster.pem("certificate-authority"),
        client=ClientCertificate(certificate, key) if certificate is not None and key is not None else None,
        server_name=cluster.text("tls-server-name") or None,
        verify=cluster.value.get("insecure-skip-tls-verify") is not True,
    )


def _authentication(user: Entry, cluster: Entry) -> Authentication:
    token_file, token, username = user.path("tokenFile"), user.text("token"), user.text("username")
    if username and (token or token_file):
        raise CredentialsError(f"kubeconfig: {user.label} has both a token and a password")
    if token_file:
        return TokenFile(token_file)
    if token:
        return Token(token)
    if username:
        return Basic(username, user.text("password"))
    if user.value.get("exec"):
        return _exec_plugin(Entry(f"exec of {user.label}", user.value["exec"], user.folder), cluster)
    if user.value.get("auth-provider"):
        raise CredentialsError(f"kubeconfig: auth-provider of {user.label} is not supported; use exec")
    return None


def _exec_plugin(spec: Entry, cluster: Entry) -> ExecPlugin:
    version, command = spec.text("apiVersion"), spec.text("command")
    if version not in EXEC_VERSIONS or not command:
        raise CredentialsError(
            f"kubeconfig: {spec.label} needs a command and one of {', '.join(EXEC_VERSIONS)}"
        )
    if spec.text("interactiveMode") == "Always":
        raise CredentialsError(f"kubeconfig: {spec.label} wants to ask a person; there is none")
    return ExecPlugin(
        # As a shell does it: a path is one of the file's folder, a bare name is looked up.
        command=str(spec.folder / command) if "/" in command else command,
        arguments=tuple(map(str, spec.value.get("args") or [])),
        environment=dict(_pairs(spec.value.get("env"))),
        api_version=version,
        cluster_info=_cluster_info(cluster) if spec.value.get("provideClusterInfo") is True else None,
        install_hint=spec.text("installHint"),
    )


def _pairs(items: Any) -> Iterable[tuple[str, str]]:
    try:
        return [(str(item["name"]), str(item["value"])) for item in items or []]
    except (TypeError, KeyError) as problem:
        raise CredentialsError("kubeconfig: env of exec must be a list of names and values") from problem


def _cluster_info(cluster: Entry) -> dict[str, Any]:
    copied = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "certificate-authority-data",
        "proxy-url",
    )
    info = {key: cluster.value[key] for key in copied if cluster.value.get(key)}
    extensions = cluster.value.get("extensions") or []
    configs = [item.get("extension") for item in extensions if item.get("name") == _EXEC_EXTENSION]
    return info | ({"config": configs[0]} if configs else {})


def _impersonation(user: Entry) -> Iterable[tuple[str, str]]:
    if user.text("as"):
        yield "Impersonate-User", user.text("as")
    if user.text("as-uid"):
        yield "Impersonate-Uid", user.text("as-uid")
    for group in user.value.get("as-groups") or []:
        yield "Impersonate-Group", str(group)
    for key, values in (user.value.get("as-user-extra") or {}).items():
        for value in values:
            yield f"Impersonate-Extra-{key}", str(value)

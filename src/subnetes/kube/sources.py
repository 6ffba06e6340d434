"""Where credentials come from on this machine: kubeconfig files, or the pod's service account.

`find_credentials` is what commands call; agents and controllers run in a pod and in development alike.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from subnetes.kube.credentials import Credentials, Tls, TokenFile
from subnetes.kube.errors import CredentialsError
from subnetes.kube.kubeconfig import credentials_of, merge
from subnetes.kube.proxies import proxy_from

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_credentials(
    kubeconfig: Path | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Credentials:
    """The kubeconfig given, else $KUBECONFIG, else ~/.kube/config, else the pod's service account."""
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig, context=context, environ=environ)
    files = [path for path in default_files(environ) if path.exists()]
    if files:
        return from_kubeconfig(*files, context=context, environ=environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ)
    tried = ", ".join(map(str, default_files(environ)))
    raise CredentialsError(f"no credentials: no kubeconfig ({tried}), and not in a pod")


def from_kubeconfig(
    *files: Path, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Credentials:
    parsed = [(path.absolute().parent, _content(path)) for path in files]
    return credentials_of(merge(parsed), environ, context)


def default_files(environ: Mapping[str, str]) -> list[Path]:
    configured = [Path(text) for text in environ.get("KUBECONFIG", "").split(os.pathsep) if text]
    return configured or [Path(environ.get("HOME") or Path.home()) / ".kube" / "config"]


def in_cluster(environ: Mapping[str, str] = os.environ, folder: Path = SERVICE_ACCOUNT) -> Credentials:
    """The pod's service account; its token is read again whenever the kubelet rotates it."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise CredentialsError("not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set")
    if not (folder / "token").exists():
        raise CredentialsError(f"no service account token in {folder}")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = folder / "namespace"
    return Credentials(
        server=server,
        authentication=TokenFile(folder / "token"),
        tls=Tls(authority=folder / "ca.crt"),
        proxy=proxy_from(environ, server),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _content(path: Path) -> Any:
    try:
        return yaml.load(path.read_bytes(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except (OSError, yaml.YAMLError) as problem:
        raise CredentialsError(f"{path} cannot be read: {problem}") from problem

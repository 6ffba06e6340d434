"""Which proxy leads to a server: by a kubeconfig's proxy-url, or by the environment as Go reads it. Pure."""

import ipaddress
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from subnetes.kube.credentials import Proxy
from subnetes.kube.errors import CredentialsError

_PORTS = {"http": 80, "https": 443}


def proxy_of(url: str) -> Proxy:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CredentialsError(f"{parts.scheme or 'no scheme'}: only http and https proxies are supported")
    bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.username is None:
        return Proxy(bare)
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(bare, "Basic " + b64encode(login.encode()).decode())


def proxy_from(environ: Mapping[str, str], server: str) -> Proxy | None:
    """HTTPS_PROXY or HTTP_PROXY by the server's scheme, unless NO_PROXY or loopback exempts its host."""
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    url = environ.get(name.upper()) or environ.get(name)
    if not url or not parts.hostname:
        return None
    exempt = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    port = parts.port or _PORTS.get(parts.scheme, 0)
    if _is_loopback(parts.hostname) or _exempted(parts.hostname, port, exempt):
        return None
    return proxy_of(url if "://" in url else f"http://{url}")


def _exempted(host: str, port: int, no_proxy: str) -> bool:
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return any(_matches(host.lower(), port, entry) for entry in entries if entry)


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        network = _network(entry)
        return address is not None and network is not None and address in network
    entry, entry_port = _split_port(entry)
    if entry_port is not None and entry_port != port:
        return False
    if address is not None:
        return address == _address(entry)
    suffix = entry.removeprefix("*").removeprefix(".")
    only_below = entry.startswith((".", "*."))  # ".corp" exempts what is below corp, "corp" also corp itself
    return host.endswith(f".{suffix}") or (host == suffix and not only_below)


def _split_port(entry: str) -> tuple[str, int | None]:
    if _address(entry) is not None:
        return entry, None
    name, colon, port = entry.rpartition(":")
    return (name.strip("[]"), int(port)) if colon and port.isdigit() else (entry.strip("[]"), None)


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None

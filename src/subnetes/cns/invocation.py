"""One execution of the CNI plugin, as values: its environment and config in, a result or an error as bytes
out.

Pure; `verbs.py` calls it, and `queue.py` for the DELs that were kept on disk. The rules and the error codes
are those of the CNI specification 1.1.0 (sections 2 and 5), the shapes of results those of each version.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from subnetes.cns.ipam import Assigned
from subnetes.ipam.pool import Holder

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST = VERSIONS[-1]
MOST_ENVIRONMENT = 1 << 20
MOST_REQUEST = 4 + MOST_ENVIRONMENT + (4 << 20)

INCOMPATIBLE_VERSION, BAD_ENVIRONMENT, IO_FAILURE, NOT_DECODED, BAD_CONFIG = 1, 4, 5, 6, 7
TRY_AGAIN, UNAVAILABLE, INTERNAL = 11, 50, 999
NOT_AS_RECORDED, NOT_ALLOWED = 100, 101  # ours: the specification leaves 100 and above to plugins

_SINCE = {"ADD": "0.3.1", "DEL": "0.3.1", "CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
_NEEDED = {
    "ADD": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "CHECK": ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    "DEL": ("CNI_CONTAINERID", "CNI_IFNAME"),
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_NOT_IN_IFNAME = re.compile(r"[/:\s]")
_LONGEST_NAME, _LONGEST_IFNAME = 253, 15


class Failure(Exception):
    """A CNI error: the code, what is wrong, and what to do."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


def no_request() -> Failure:
    """What was sent cannot have come from the plugin's executable."""
    why = "only subnetes-ipam speaks on the agent's socket: see which other program uses it"
    return Failure(NOT_DECODED, "this is no request of the CNI plugin", why)


class Route(msgspec.Struct, omit_defaults=True):
    dst: str
    gw: str = ""


class Section(msgspec.Struct, rename="camel"):
    """`ipam` of the network config: what is for us. The socket is the executable's business."""

    subnet_name: str = ""
    """The ClusterSubnet to draw from; absent: the default network's."""
    routes: list[Route] | None = None
    """Instead of a default route through the subnet's gateway."""


class ResultIP(msgspec.Struct):
    address: str


class Result(msgspec.Struct):
    ips: list[ResultIP] = []


class Attachment(msgspec.Struct):
    container_id: str = msgspec.field(name="containerID")
    ifname: str


class Config(msgspec.Struct, rename="camel"):
    cni_version: str = ""
    name: str = ""
    ipam: Section | None = None
    prev_result: Result | None = None
    valid_attachments: list[Attachment] | None = msgspec.field(name="cni.dev/valid-attachments", default=None)


class Invocation(msgspec.Struct, frozen=True):
    command: str
    variables: Mapping[str, str]
    config: Config

    @property
    def container_id(self) -> str:
        return self.variables["CNI_CONTAINERID"]

    @property
    def ifname(self) -> str:
        return self.variables["CNI_IFNAME"]


_decode = msgspec.json.Decoder(Config).decode
_encode = msgspec.json.Encoder().encode


def variables(request: bytes) -> tuple[dict[str, str], bytes]:
    """The environment of a request, and what follows it."""
    length = int.from_bytes(request[:4], "big")
    if len(request) < 4 + length or length > MOST_ENVIRONMENT or (length and request[3 + length]):
        raise no_request()
    found: dict[str, str] = {}
    try:
        for pair in request[4 : 3 + length].decode().split("\0"):
            name, _, value = pair.partition("=")
            found.setdefault(name, value)
    except UnicodeDecodeError:
        raise Failure(BAD_ENVIRONMENT, "a CNI_ variable is not UTF-8") from None
    return found, request[4 + length :]


def config(text: bytes) -> Config:
    try:
        return _decode(text)
    except msgspec.ValidationError as problem:
        raise Failure(BAD_CONFIG, f"invalid network config: {problem}") from None
    except (msgspec.DecodeError, RecursionError) as problem:
        raise Failure(NOT_DECODED, "the network config is not JSON", str(problem)) from None


def invocation(found: Mapping[str, str], read: Config) -> Invocation:
    """Both halves, checked."""
    command = found.get("CNI_COMMAND", "")
    if command not in _SINCE:
        known = ", ".join([*_SINCE, "VERSION"])
        raise Failure(BAD_ENVIRONMENT, f"CNI_COMMAND is {command!r}, not one of {known}")
    _check_version(command, read.cni_version)
    if not _is_name(read.name):
        what = f"the network's name {read.name!r} is not allowed" if read.name else "the network has no name"
        why = "`name` starts with a letter or digit, followed by letters, digits, `_`, `.` or `-`"
        raise Failure(BAD_CONFIG, f"invalid network config: {what}", why)
    check_variables(command, found)
    return Invocation(command, found, read)


def _check_version(command: str, version: str) -> None:
    if version not in VERSIONS:
        said = f"cniVersion {version!r}" if version else "a config without cniVersion"
        why = f"this plugin supports {', '.join(VERSIONS)}"
        raise Failure(INCOMPATIBLE_VERSION, f"{said} is not supported", why)
    if VERSIONS.index(version) < VERSIONS.index(_SINCE[command]):
        raise Failure(
            INCOMPATIBLE_VERSION, f"CNI {version} has no {command}", f"it came with {_SINCE[command]}"
        )


def check_variables(command: str, found: Mapping[str, str]) -> None:
    missing = [name for name in _NEEDED.get(command, ()) if not found.get(name)]
    if missing:
        raise Failure(BAD_ENVIRONMENT, f"{command} needs {', '.join(missing)}")
    if command not in _NEEDED:
        return
    if not _is_name(found["CNI_CONTAINERID"]):
        why = "it starts with a letter or digit, followed by letters, digits, `_`, `.` or `-`"
        raise Failure(BAD_ENVIRONMENT, f"CNI_CONTAINERID is not allowed: {found['CNI_CONTAINERID']!r}", why)
    if not _is_ifname(found["CNI_IFNAME"]):
        why = "an interface name has at most 15 bytes, no `/`, `:` or space, and is not `.` or `..`"
        raise Failure(BAD_ENVIRONMENT, f"CNI_IFNAME is not allowed: {found['CNI_IFNAME']!r}", why)


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _is_ifname(text: str) -> bool:
    if text in (".", "..") or len(text.encode()) > _LONGEST_IFNAME:
        return False
    return _NOT_IN_IFNAME.search(text) is None


def holder(call: Invocation) -> Holder:
    """Who asks. The pod is for people and for demand; nothing is ever released by it."""
    arguments = _arguments(call.variables)
    return Holder(
        container_id=call.container_id,
        ifname=call.ifname,
        network=call.config.name,
        pod_namespace=arguments.get("K8S_POD_NAMESPACE", ""),
        pod_name=arguments.get("K8S_POD_NAME", ""),
        pod_uid=arguments.get("K8S_POD_UID", ""),
        netns=call.variables.get("CNI_NETNS", ""),
    )


def _arguments(found: Mapping[str, str]) -> dict[str, str]:
    pairs = (each.partition("=") for each in found.get("CNI_ARGS", "").split(";"))
    return {name: value for name, _, value in pairs}


def pod_uid(found: Mapping[str, str]) -> str:
    return _arguments(found).get("K8S_POD_UID", "")


def previous(read: Config) -> list[str]:
    """The addresses that ADD answered with, as the runtime remembers them; it need not."""
    return [each.address.partition("/")[0] for each in read.prev_result.ips] if read.prev_result else []


def expected(call: Invocation) -> list[str]:
    """The addresses that CHECK is to find."""
    if call.config.prev_result is None:
        raise Failure(BAD_CONFIG, "invalid network config: CHECK needs prevResult")
    return previous(call.config)


def valid_attachments(call: Invocation) -> set[tuple[str, str]]:
    """Absent is not empty: an empty list releases everything."""
    listed = call.config.valid_attachments
    if listed is None:
        raise Failure(BAD_CONFIG, "invalid network config: GC needs cni.dev/valid-attachments")
    return {(each.container_id, each.ifname) for each in listed}


def result(call: Invocation, assigned: Iterable[Assigned]) -> bytes:
    """What ADD prints. Before 1.0.0 an IP said its family; an IPAM plugin names no interfaces."""
    version, given = call.config.cni_version, list(assigned)
    old = version in ("0.3.1", "0.4.0")
    routes: list[Any] = [_default_route(each) for each in given if each.gateway]
    if call.config.ipam is not None and call.config.ipam.routes is not None:
        routes = call.config.ipam.routes
    return _encode(
        {"cniVersion": version, "ips": [_ip(each, old) for each in given], "routes": routes, "dns": {}}
    )


def _ip(assigned: Assigned, old: bool) -> dict[str, str]:
    shown = {"address": f"{assigned.address}/{assigned.prefix_length}"}
    if assigned.gateway:
        shown["gateway"] = assigned.gateway
    if old:
        shown["version"] = str(assigned.family)
    return shown


def _default_route(assigned: Assigned) -> dict[str, str]:
    return {"dst": "::/0" if assigned.family == 6 else "0.0.0.0/0", "gw": assigned.gateway}


def error(failure: Failure, version: str) -> bytes:
    said = version if version in VERSIONS else NEWEST
    return _encode(
        {"cniVersion": said, "code": failure.code, "msg": failure.message, "details": failure.details}
    )


def versions(version: str) -> bytes:
    return _encode({"cniVersion": version or NEWEST, "supportedVersions": VERSIONS})

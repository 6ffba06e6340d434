#!/usr/bin/env -S python3 -IS
"""subnetes-ipam where there was no compiler: the same as subnetes-ipam.c, which says what it does and why.

It costs an interpreter start a call. Only the standard library, and nothing of ours: the build copies this
file to where the executable would be. A test runs both on the same requests; a change here is a change
there.
"""

# ruff: noqa: PTH102, PTH104, PTH108, PTH208
# (pathlib would cost a third of the start)

import json
import os
import re
import socket
import sys
import time
from typing import Any

MOST_CONFIG = 4 << 20
MOST_ENVIRONMENT = 1 << 20
MOST_ANSWER = 4 << 20
MOST_QUEUED = 16384
MOST_DEPTH = 100
LONGEST_PATH = 100

BAD_ENVIRONMENT, IO_FAILURE, NOT_JSON, BAD_CONFIG, TRY_AGAIN, UNAVAILABLE = 4, 5, 6, 7, 11, 50

VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST = VERSIONS[-1]
DEFAULT_SOCKET = "/run/subnetes/cns.sock"
SEE_CONFIG = "see the plugin's section of the network config"
PATIENCE = {"ADD": 60.0, "STATUS": 5.0, "DEL": 5.0}

# Python's reader takes more than JSON allows (lone surrogates, NaN), so every token is looked at first.
TOKEN = re.compile(
    r"""[ \t\n\r]+|[{}\[\],:]|true|false|null
    |-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?
    |"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]
        |\\u(?![dD][89abcdefABCDEF])[0-9a-fA-F]{4}
        |\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
    """,
    re.VERBOSE,
)


class Failed(Exception):
    """A CNI error: its code, what is wrong, and what to do."""

    def __init__(self, code: int, message: str, details: str = "") -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details


def main() -> int:
    version = NEWEST
    try:
        command = os.environ.get("CNI_COMMAND", "")
        if not command:
            why = "this is a CNI plugin: a container runtime executes it"
            raise Failed(BAD_ENVIRONMENT, "CNI_COMMAND is not set", why)
        environment = environment_block()
        text = config_text()
        config = parsed(text)
        version = version_of(config)
        if command == "VERSION":
            show({"cniVersion": version, "supportedVersions": VERSIONS})
            return 0
        if config is None:
            raise not_json()
        request = len(environment).to_bytes(4, "big") + environment + text
        return carry(command, socket_of(config), request)
    except Failed as problem:
        show(
            {
                "cniVersion": version,
                "code": problem.code,
                "msg": problem.message,
                "details": problem.details,
            }
        )
        return 1
    except BrokenPipeError:
        return 1


def show(document: dict[str, Any]) -> None:
    write_all(1, json.dumps(document, separators=(",", ":")).encode() + b"\n")


def not_json() -> Failed:
    return Failed(NOT_JSON, "the network config on standard input is not a JSON object", SEE_CONFIG)


# --- the request


def environment_block() -> bytes:
    pairs = [name + b"=" + value + b"\0" for name, value in os.environb.items() if name.startswith(b"CNI_")]
    block = b"".join(pairs)
    if len(block) > MOST_ENVIRONMENT:
        raise Failed(BAD_ENVIRONMENT, "the CNI_ variables are longer than 1 MiB")
    return block


def config_text() -> bytes:
    text = b""
    try:
        while len(text) <= MOST_CONFIG:
            piece = os.read(0, MOST_CONFIG + 1 - len(text))
            if not piece:
                return text
            text += piece
    except OSError:
        raise Failed(IO_FAILURE, "standard input cannot be read") from None
    raise Failed(NOT_JSON, "the network config is longer than 4 MiB")


def parsed(text: bytes) -> dict[str, Any] | None:
    """The config, or nothing if it is not a JSON object."""
    try:
        words = text.decode()
        if not is_strict(words):
            return None
        config = json.loads(words, parse_int=float)  # an int may not have too many digits
    except ValueError:
        return None
    return config if isinstance(config, dict) else None


def is_strict(words: str) -> bool:
    at = depth = 0
    while at < len(words):
        token = TOKEN.match(words, at)
        if token is None:
            return False
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth > MOST_DEPTH:
            return False
        at = token.end()
    return True


def version_of(config: dict[str, Any] | None) -> str:
    """The version to answer in: the config's, if we know it."""
    said = (config or {}).get("cniVersion")
    return said if isinstance(said, str) and said in VERSIONS else NEWEST


def socket_of(config: dict[str, Any]) -> str:
    section = config.get("ipam")
    if isinstance(section, dict) and "socket" in section:
        path = section["socket"]
        if not isinstance(path, str):
            raise Failed(BAD_CONFIG, "ipam.socket is not a string", SEE_CONFIG)
        if not is_path(path):
            why = "ipam.socket must be an absolute path of at most 100 bytes"
            raise Failed(BAD_CONFIG, why, SEE_CONFIG)
        return path
    path = os.environ.get("SUBNETES_SOCKET") or DEFAULT_SOCKET
    if not is_path(path):
        raise Failed(BAD_ENVIRONMENT, "SUBNETES_SOCKET must be an absolute path of at most 100 bytes")
    return path


def is_path(path: str) -> bool:
    return path.startswith("/") and len(os.fsencode(path)) <= LONGEST_PATH and "\0" not in path


# --- the agent


def carry(command: str, path: str, request: bytes) -> int:
    try:
        answer = ask(path, request, time.monotonic() + PATIENCE.get(command, 30.0))
    except OSError:
        answer = b""
    if not answer:
        return without_agent(command, path, request)
    write_all(1, answer[1:])
    return answer[0]


def ask(path: str, request: bytes, deadline: float) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
        connect(agent, path, deadline)
        agent.sendall(request)
        agent.shutdown(socket.SHUT_WR)
        pieces: list[bytes] = []
        while sum(map(len, pieces)) <= MOST_ANSWER:
            agent.settimeout(left(deadline))
            piece = agent.recv(1 << 16)
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)
    return b""


def connect(agent: socket.socket, path: str, deadline: float) -> None:
    """A full backlog answers at once, so it is asked again until the deadline."""
    while True:
        agent.settimeout(left(deadline))
        try:
            return agent.connect(path)
        except BlockingIOError:
            time.sleep(0.005)


def left(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def without_agent(command: str, path: str, request: bytes) -> int:
    if command != "DEL":
        why = "is it running (subnetes agent), and is ipam.socket of the network config its socket?"
        code = UNAVAILABLE if command == "STATUS" else TRY_AGAIN
        raise Failed(code, "the agent does not answer", why)
    if not (os.environ.get("CNI_CONTAINERID") and os.environ.get("CNI_IFNAME")):
        raise Failed(BAD_ENVIRONMENT, "DEL needs CNI_CONTAINERID and CNI_IFNAME")
    try:
        enqueue(f"{path}.queue", request)
    except OSError:
        why = "start the agent (subnetes agent), or look at the folder named after its socket, .queue"
        raise Failed(TRY_AGAIN, "the agent does not answer and DEL cannot be queued", why) from None
    return 0


# --- the queue of DELs


def enqueue(folder: str, request: bytes) -> None:
    make_folders(folder)
    if len(os.listdir(folder)) + 2 > MOST_QUEUED:
        raise OSError("the queue is full")
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    name = f"{seconds}{10**9 + nanoseconds}-{os.getpid()}"
    hidden = f"{folder}/.{name}"
    file = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            write_all(file, request)
        finally:
            os.close(file)
        os.rename(hidden, f"{folder}/{name}")
    except OSError:
        os.unlink(hidden)
        raise


def make_folders(folder: str) -> None:
    parts = folder.split("/")
    for depth in range(2, len(parts) + 1):
        try:
            os.mkdir("/".join(parts[:depth]), 0o700)
        except FileExistsError:
            continue


def write_all(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]


if __name__ == "__main__":
    sys.exit(main())

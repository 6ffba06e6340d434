"""DELs that came while no agent listened. The plugin left each as a file; here they are done and taken
away.

The folder stands beside the socket (`<socket>.queue`), one file a DEL, the bytes of the request, under a
name that sorts by time. `endpoint.py` looks before each ADD, so that a queued DEL never overtakes the ADD
that came after it.
"""

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from subnetes.cns import invocation as cni

log = logging.getLogger(__name__)

ABANDONED_AFTER = 60.0  # seconds: the plugin that wrote a half file is long dead


class Releases(Protocol):
    def delete(
        self, container_id: str, ifname: str, pod_uid: str = "", addresses: Iterable[str] = ()
    ) -> list[str]: ...


def folder_of(socket: Path) -> Path:
    return socket.with_name(f"{socket.name}.queue")


def replay(ipam: Releases, folder: Path) -> int:
    """Do every DEL of the queue; how many there were. What the pool cannot do stays for the next time."""
    done = 0
    for name in _names(folder):
        path = folder / name
        if name.startswith("."):
            _drop_abandoned(path)
            continue
        try:
            found, addresses = _read(path.read_bytes())
        except FileNotFoundError:
            continue
        except OSError as problem:
            log.warning("a queued DEL cannot be read; take %s away: %s", path, problem.strerror)
            continue
        except cni.Failure as failure:
            log.warning("%s is no DEL and is dropped: %s", path, failure)
        else:
            ipam.delete(found["CNI_CONTAINERID"], found["CNI_IFNAME"], cni.pod_uid(found), addresses)
            done += 1
        path.unlink(missing_ok=True)
    return done


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - at every ADD: names, no objects
    except FileNotFoundError:
        return []


def _read(request: bytes) -> tuple[dict[str, str], list[str]]:
    """Only who is deleted counts: a config that is no longer good is no reason to keep an IP."""
    found, text = cni.variables(request)
    if found.get("CNI_COMMAND") != "DEL":
        raise cni.Failure(cni.BAD_ENVIRONMENT, f"CNI_COMMAND is {found.get('CNI_COMMAND')!r}")
    cni.check_variables("DEL", found)
    try:
        return found, cni.previous(cni.config(text))
    except cni.Failure:
        return found, []


def _drop_abandoned(path: Path) -> None:
    try:
        if time.time() - path.stat().st_mtime > ABANDONED_AFTER:
            path.unlink()
    except OSError as problem:
        log.debug("%s stays: %s", path, problem)

"""An image without a registry: a static program that waits, as an OCI archive that containerd can import.

It is the sandbox image of a test cluster and the only container of its pods. The same program is the first
process of each of its machines, so it also reaps orphans.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from pathlib import Path
from typing import Any

NAME = "localhost/pause:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SOURCE = """
#include <signal.h>
#include <sys/wait.h>

int main(void)
{
    sigset_t signals;
    int which;

    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, 0);
    for (;;) {
        sigwait(&signals, &which);
        if (which != SIGCHLD)
            return 0;
        while (waitpid(-1, 0, WNOHANG) > 0)
            ;
    }
}
"""


def compile_program(target: Path) -> None:
    command = ["gcc", "-x", "c", "-Os", "-s", "-static", "-o", str(target), "-"]
    done = subprocess.run(command, input=_SOURCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"gcc cannot build a static program: {done.stderr}")


def pack(program: Path, archive: Path) -> None:
    """The OCI image layout of one layer with one file, `/pause`, in a tar archive."""
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    system = {"architecture": _ARCHITECTURES[platform.machine()], "os": "linux"}
    rootfs = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json(system | {"config": {"Entrypoint": ["/pause"]}, "rootfs": rootfs})
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar", layer)],
        }
    )
    named = {"annotations": {"io.containerd.image.name": NAME}, "platform": system}
    index = _json({"schemaVersion": 2, "manifests": [_descriptor("manifest.v1+json", manifest) | named]})
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (config, manifest, layer)}
    layout = _json({"imageLayoutVersion": "1.0.0"})
    archive.write_bytes(_tar({"oci-layout": layout, "index.json": index} | blobs))


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()

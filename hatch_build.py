"""What the package's build does beside packing: make the CNI executable, for wheels and editable installs
alike.

Called by hatchling. With a C compiler (`CC`, else cc, gcc or clang) it is compiled, static where the system
can link so; without one, the Python fallback takes its place, and `pip` says so.
"""

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HOME = "src/subnetes/cni"
FLAGS = ("-std=gnu11", "-O2", "-s", "-Wall", "-Wextra")


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's signature
        if self.target_name != "wheel":
            return
        folder = Path(self.root, HOME)
        compiled = build(folder, folder / "bin" / "subnetes-ipam")
        build_data["artifacts"].append(f"/{HOME}/bin/subnetes-ipam")
        if compiled:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"
            build_data["pure_python"] = False
        else:
            self.app.display_warning("no C compiler: the CNI plugin is the slower Python fallback")


def build(sources: Path, target: Path) -> bool:
    """Put the executable there, by rename: a runtime may be executing the old one. Whether it is native."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        compiled = _compile(sources / "subnetes-ipam.c", made)
        if not compiled:
            shutil.copyfile(sources / "fallback.py", made)
        made.chmod(0o755)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return compiled


def _compile(source: Path, target: Path) -> bool:
    compiler = _compiler()
    if not compiler:
        return False
    for linking in (["-static"], []):  # a system may have no static C library
        command = [*compiler, *FLAGS, *linking, "-o", str(target), str(source)]
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (subprocess.CalledProcessError, OSError):
            continue
        return True
    return False


def _compiler() -> list[str]:
    chosen = shlex.split(os.environ.get("CC", ""))
    if chosen:
        return chosen
    return [found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))][:1]

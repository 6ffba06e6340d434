"""What the package's build does beside packing: make the CNI executable, for wheels and editable installs
alike.

Called by hatchling. With a C compiler (`CC`, else cc, gcc or clang) it is compiled: without a C library where
bare.c stands in for it, else static, else as the system can; without a compiler the Python fallback takes its
place, and `pip` says so.
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
# No library, nothing that a compiler may put in which needs one, and as few pages as can be: each that the
# kernel has to map is felt by every pod.
BARE = (
    *("-nostdlib", "-static", "-no-pie", "-fno-pie", "-ffreestanding", "-fno-builtin"),
    *("-fno-tree-loop-distribute-patterns", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
    *("-fno-asynchronous-unwind-tables", "-fcf-protection=none"),
    *("-Wl,-z,noseparate-code", "-Wl,-z,norelro", "-Wl,--build-id=none"),
)
PLUGIN, LIBRARY = "subnetes-ipam.c", "bare.c"
# From the best to what any system can do; it may have no static C library.
WAYS = ((BARE, (PLUGIN, LIBRARY)), (("-static",), (PLUGIN,)), ((), (PLUGIN,)))


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
        compiled = _compile(sources, made)
        if not compiled:
            shutil.copyfile(sources / "fallback.py", made)
        made.chmod(0o755)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return compiled


def _compile(sources: Path, target: Path) -> bool:
    compiler = _compiler()
    if not compiler:
        return False
    for flags, names in WAYS:
        command = [*compiler, *FLAGS, *flags, "-o", str(target), *(str(sources / name) for name in names)]
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

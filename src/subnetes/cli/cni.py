"""`subnetes cni install DIR`: put the CNI plugin where the container runtime looks for it."""

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from subnetes.cni import NAME, PluginMissing, plugin_path


def add_to(commands: Any) -> None:
    command = commands.add_parser("cni", help="the CNI plugin that container runtimes execute")
    verbs = command.add_subparsers(metavar="VERB", required=True)
    install = verbs.add_parser("install", help="copy the plugin into a folder, such as /opt/cni/bin")
    install.add_argument("folder", metavar="DIR", type=Path)
    install.set_defaults(run=run_install)


def run_install(options: argparse.Namespace) -> int:
    try:
        print(install(options.folder))
    except (PluginMissing, OSError) as problem:
        print(f"subnetes cni install: {problem}", file=sys.stderr)
        return 1
    return 0


def install(folder: Path) -> Path:
    """By rename: a runtime may be executing the old one, and must never find half of the new one."""
    source = plugin_path()
    folder.mkdir(parents=True, exist_ok=True)
    target, made = folder / NAME, folder / f".{NAME}.{os.getpid()}"
    try:
        shutil.copyfile(source, made)
        made.chmod(0o755)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return target

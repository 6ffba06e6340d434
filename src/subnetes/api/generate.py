"""`python -m subnetes.api.generate` writes deploy/crds/ from the structs; with `--check` it only compares.

A developer's tool (make generate, make check): nothing at run time reads the files, they are for kubectl.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from subnetes.api.crd import crds

FOLDER = Path(__file__).parents[3] / "deploy" / "crds"
_HEADER = "# Generated from src/subnetes/api by `make generate`; do not edit.\n"


def files() -> dict[str, str]:
    """Every file that belongs into the folder, by name."""
    return {f"{crd['metadata']['name']}.yaml": _HEADER + _yaml(crd) for crd in crds()}


def stale(folder: Path) -> list[str]:
    """The names of files that are missing, outdated or left over."""
    found = {path.name: path.read_text() for path in folder.glob("*.yaml")}
    wanted = files()
    return sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))


def write(folder: Path) -> list[str]:
    """Make the folder hold exactly the files; returns the names of those that changed."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted, changed = files(), stale(folder)
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
    return changed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m subnetes.api.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args(arguments)
    if not options.check:
        for name in write(options.folder):
            print(f"wrote {options.folder / name}")
        return 0
    outdated = stale(options.folder)
    for name in outdated:
        print(f"{options.folder / name} is stale: run `make generate`", file=sys.stderr)
    return 1 if outdated else 0


def _yaml(value: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=100, allow_unicode=True)
    return text


if __name__ == "__main__":
    sys.exit(main())

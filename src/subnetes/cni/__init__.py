"""The CNI plugin that a runtime executes: where its executable is. Imports nothing of ours, and is imported
by few.

The package's build (hatch_build.py) puts it into `bin/`: compiled from `subnetes-ipam.c`, or, where there
was no compiler, a copy of `fallback.py`, which behaves the same and starts slower.
"""

import os
from pathlib import Path

NAME = "subnetes-ipam"


class PluginMissing(Exception):
    """The package was not built, only its sources are there; the text says what to do."""


def plugin_path() -> Path:
    path = Path(__file__).parent / "bin" / NAME
    if not os.access(path, os.X_OK):
        raise PluginMissing(f"{path} is not there: install the package (`make setup`, or `pip install .`)")
    return path

"""The JSONPaths of printer columns: fields, indices, `[*]` and filters such as `[?(@.type=="Ready")]`.

`table` compiles a column's path once and asks it for the first value that it leads to in each object.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

Step = Callable[[Any], Iterable[Any]]  # from one value to those below it
MISSING: Any = object()

_STEP = re.compile(
    r"""\.?\['(?P<quoted>[^']*)'\]
      | \[\?\(\s*@\.(?P<field>\w+)\s*==\s*["'](?P<literal>[^"']*)["']\s*\)\]
      | \[(?P<index>\d+)\]
      | \[\*\](?P<all>)
      | \.(?P<name>(?:[^.\[\]\\]|\\.)+)""",
    re.VERBOSE,
)


@cache
def compile_path(path: str) -> Callable[[Any], Any]:
    """A function that finds the first value at this path, or MISSING, which is all a bad path finds."""
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return lambda _: MISSING
        steps.append(_step(match))
        position = match.end()

    def find(value: Any) -> Any:
        found = [value]
        for step in steps:
            found = [below for each in found for below in step(each)]
        return found[0] if found else MISSING

    return find


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _step(match: re.Match[str]) -> Step:
    field, literal = match["field"], match["literal"]
    if match["index"] is not None:
        index = int(match["index"])
        return lambda value: value[index : index + 1] if isinstance(value, list) else ()
    if match["all"] is not None:
        return lambda value: value if isinstance(value, list) else ()
    if field is not None:
        return lambda value: [item for item in _objects(value) if item.get(field) == literal]
    name = match["quoted"] or re.sub(r"\\(.)", r"\1", match["name"])
    return lambda value: (value[name],) if isinstance(value, dict) and name in value else ()

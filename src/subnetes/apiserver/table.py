"""Lists as tables (meta.k8s.io/v1 Table): what `kubectl get` asks for and prints as it comes.

Custom resources have the columns that their CRD declares, core kinds those of `builtins`.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from subnetes.apiserver.causes import shown
from subnetes.apiserver.jsonpath import MISSING, compile_path
from subnetes.apiserver.resources import Column, Served

Json = dict[str, Any]

_AGE = (Column("Age", "date", ".metadata.creationTimestamp", "How long ago the object was created"),)
_NAME = Column("Name", "string", ".metadata.name", "The object's name", format="name")
_HOUR, _DAY, _YEAR = 3600, 86400, 365 * 86400

# Below so many seconds an age is shown in this unit, with the rest in the finer one, if there is one.
_SCALES = (
    (120, (1, "s"), None),
    (600, (60, "m"), (1, "s")),
    (3 * _HOUR, (60, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (60, "m")),
    (48 * _HOUR, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def table(
    served: Served,
    items: list[Json],
    *,
    resource_version: str,
    continue_: str | None,
    remaining: int | None,
    now: datetime,
    include_object: str = "Metadata",
) -> Json:
    """The table of these objects; `include_object` is None, Metadata or Object, as in the query."""
    metadata: Json = {"resourceVersion": resource_version}
    if continue_:
        metadata["continue"] = continue_
    if remaining is not None:
        metadata["remainingItemCount"] = remaining
    columns = (_NAME, *(served.columns or _AGE))
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [
            {
                "cells": [_cell(column, item, now) for column in columns],
                "object": _object(item, include_object),
            }
            for item in items
        ],
    }


def _definition(column: Column) -> Json:
    described = f"Custom resource definition column (in JSONPath format): {column.json_path}"
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description or described,
        "priority": column.priority,
    }


def _object(item: Json, include: str) -> Json | None:
    if include == "None":
        return None
    if include == "Object":
        return item
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def _cell(column: Column, item: Json, now: datetime) -> Any:
    value = compile_path(column.json_path)(item)
    if value is MISSING:
        return None
    if column.type == "string":
        return _text(value)
    if column.type == "boolean":
        return value if isinstance(value, bool) else None
    if column.type == "date":
        return _age(value, now) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if column.type == "integer" else value


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return value if isinstance(value, str) else shown(value)


def _age(timestamp: str, now: datetime) -> str:
    try:
        return human_duration(now - datetime.fromisoformat(timestamp))
    except (ValueError, TypeError):  # no time, or one of no time zone
        return "<invalid>"


def human_duration(span: timedelta) -> str:
    """As kubectl writes it: `45s`, `5m30s`, `3h12m`, `2d4h`, `400d`, `3y21d`."""
    seconds = int(span.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for limit, (unit, name), finer in _SCALES:
        if seconds < limit:
            rest = seconds % unit // finer[0] if finer else 0
            return f"{seconds // unit}{name}" + (f"{rest}{finer[1]}" if finer and rest else "")
    return f"{seconds // _YEAR}y"

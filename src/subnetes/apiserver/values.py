"""Whether a value fits the place of the schema it is at: type, limits, pattern, format, enum, list type.

`schema` compiles one check a place, so that a valid object costs a few calls per value and builds no strings.
The words are kube-apiserver's (`causes`), its oddities included: a wrong type is reported with the *type* as
the bad value, a string too long without the string.
"""

import json
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

from subnetes.apiserver import causes
from subnetes.apiserver.causes import Path, quoted, render, shown
from subnetes.apiserver.formats import FORMATS, INTEGERS, compile_pattern
from subnetes.apiserver.status import Cause

Json = dict[str, Any]
Check = Callable[[Any, Path, list[Cause]], None]  # value, where it is, what is wrong

_NAMES = {str: ("string", ""), bool: ("boolean", ""), int: ("integer", "int64"), float: ("number", "float64")}
_NAMES |= {list: ("array", ""), dict: ("object", "")}


def compile_check(schema: Json, unenforced: list[str]) -> tuple[Check, frozenset[type]]:
    """The check, and the types whose values always pass, so that nobody needs to ask."""
    mistyped = _type_problem(schema)
    enum = [_enum(schema["enum"])] if schema.get("enum") else []
    number = [*_number(schema), *enum]
    by_type: dict[type, list[Check]] = {
        str: [*_string(schema, unenforced), *enum],
        bool: enum,
        int: number,
        float: number,
        list: [*_array(schema), *enum],
        dict: [*enum, *_object(schema)],
        type(None): enum,
    }

    def check(value: Any, path: Path, out: list[Cause]) -> None:
        problem = mistyped(value)
        if problem is not None:
            wanted, found = problem
            detail = f"{render(path)} in body must be of type {wanted}: {quoted(found)}"
            out.append(causes.type_invalid(path, found, detail))
        for each in by_type[type(value)]:
            each(value, path, out)

    trivial = [each for each in (str, bool, int) if not by_type[each] and mistyped(each()) is None]
    return check, frozenset(trivial)


def _type_problem(schema: Json) -> Callable[[Any], tuple[str, str] | None]:
    """A function that names the type wanted and the type found of a value that has the wrong one."""
    types = ("integer", "string") if schema.get("x-kubernetes-int-or-string") else (schema.get("type"),)
    wanted = tuple(name for name in types if name)
    format_ = schema.get("format", "")
    verdicts = {kind: _verdict(kind, wanted, format_ if format_ in FORMATS else "") for kind in _NAMES}
    missing = None if not wanted or schema.get("nullable") else (",".join(wanted), "null")
    verdicts[type(None)] = missing
    whole_numbers = "integer" in wanted

    def problem(value: Any) -> tuple[str, str] | None:
        if whole_numbers and type(value) is float and value.is_integer():
            return None
        return verdicts[type(value)]

    return problem


def _verdict(kind: type, wanted: tuple[str, ...], format_: str) -> tuple[str, str] | None:
    name, precision = _NAMES[kind]
    if not wanted or name in wanted or (name == "integer" and "number" in wanted):
        return None
    if format_ and kind not in (str, list):
        return format_, precision
    if format_ and format_ not in INTEGERS:
        return None  # a list where a formatted string belongs passes in Kubernetes, too
    return ",".join(wanted), name


def _enum(allowed: list[Any]) -> Check:
    def check(value: Any, path: Path, out: list[Cause]) -> None:
        if value is None or value not in allowed:
            out.append(causes.unsupported(path, value, allowed))

    return check


def _string(schema: Json, unenforced: list[str]) -> list[Check]:
    longest, shortest = schema.get("maxLength"), schema.get("minLength")
    pattern, format_ = schema.get("pattern", ""), schema.get("format", "")
    matches, accepts = compile_pattern(pattern), FORMATS.get(format_)
    if matches is None:
        unenforced.append(f"pattern: {pattern}")
    if format_ and accepts is None and schema.get("type") == "string":
        unenforced.append(f"format: {format_}")

    def check_text(value: str, path: Path, out: list[Cause]) -> None:
        if longest is not None and len(value) > longest:
            out.append(causes.too_long(path, longest))
        elif shortest is not None and len(value) < shortest:
            detail = f"{render(path)} in body should be at least {shortest} chars long"
            out.append(causes.invalid(path, value, detail))
        elif matches is not None and not matches(value):
            out.append(causes.invalid(path, value, f"{render(path)} in body should match '{pattern}'"))

    def check_format(value: str, path: Path, out: list[Cause]) -> None:
        if accepts is not None and not accepts(value):
            detail = f"{render(path)} in body must be of type {format_}: {quoted(value)}"
            out.append(causes.type_invalid(path, value, detail))

    limited = longest is not None or shortest is not None or pattern
    return [*([check_text] if limited else []), *([check_format] if accepts else [])]


def _number(schema: Json) -> list[Check]:
    checks = [_integer(schema.get("format", ""))] if schema.get("type") == "integer" else []
    for keyword, exclusive, holds, strictly, words in _BOUNDS:
        if (bound := schema.get(keyword)) is not None:
            strict = schema.get(exclusive)
            checks.append(
                _bound(bound, strictly if strict else holds, words if strict else f"{words} or equal to")
            )
    return checks


_BOUNDS: tuple[tuple[str, str, Any, Any, str], ...] = (
    ("minimum", "exclusiveMinimum", operator.ge, operator.gt, "greater than"),
    ("maximum", "exclusiveMaximum", operator.le, operator.lt, "less than"),
)


def _bound(bound: float, holds: Callable[[float, float], bool], words: str) -> Check:
    def check(value: float, path: Path, out: list[Cause]) -> None:
        limit = int(bound) if type(value) is int else bound  # so does Kubernetes
        if not holds(value, limit):
            detail = f"{render(path)} in body should be {words} {shown(limit)}"
            out.append(causes.invalid(path, value, detail))

    return check


def _integer(format_: str) -> Check:
    bits = 31 if format_ == "int32" else 63
    described = f"with format {format_}" if format_ in INTEGERS else "(default format)"

    def check(value: float, path: Path, out: list[Cause]) -> None:
        if value != int(value) or not -(1 << bits) <= value < 1 << bits:
            detail = f"Checked value must be of type integer {described} in {render(path)}"
            out.append(causes.invalid(None, "", detail))

    return check


def _array(schema: Json) -> list[Check]:
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    keys = schema.get("x-kubernetes-list-map-keys")

    def check_size(value: list[Any], path: Path, out: list[Cause]) -> None:
        if fewest is not None and len(value) < fewest:
            detail = f"{render(path)} in body should have at least {fewest} items"
            out.append(causes.invalid(path, len(value), detail))
        if most is not None and len(value) > most:
            out.append(causes.too_many(path, len(value), most))

    def check_distinct(value: list[Any], path: Path, out: list[Cause]) -> None:
        if _surely_distinct(value, keys):
            return
        times: Counter[str] = Counter()
        for index, item in enumerate(value):
            identity = item if keys is None else _key(item, keys)
            text = json.dumps(identity, sort_keys=True)
            times[text] += 1
            if times[text] == 2:
                out.append(causes.duplicate((path, index), identity))

    distinct = schema.get("x-kubernetes-list-type") in ("set", "map")
    limited = fewest is not None or most is not None
    return [*([check_size] if limited else []), *([check_distinct] if distinct else [])]


def _key(item: Any, keys: list[str]) -> Json:
    return {key: item[key] for key in keys if key in item} if isinstance(item, dict) else {}


def _surely_distinct(value: list[Any], keys: list[str] | None) -> bool:
    """A quick look that settles nearly every list; 1 and true need the closer one."""
    try:
        identities = value if keys is None else [tuple(map(item.get, keys)) for item in value]
        return len(set(identities)) == len(value)
    except (AttributeError, TypeError):  # no objects where they belong, or objects where they do not
        return False


def _object(schema: Json) -> list[Check]:
    most, required = schema.get("maxProperties"), schema.get("required", ())

    def check(value: Json, path: Path, out: list[Cause]) -> None:
        if most is not None and len(value) > most:
            out.append(causes.too_many(path, len(value), most))
        out.extend(causes.required((path, name)) for name in required if name not in value)

    return [check] if required or most is not None else []

"""The structural OpenAPI schema of a kind, from its struct. Pure; `crd` calls it.

Types, limits and defaults come from the fields' annotations, descriptions from the texts under them, rules
from `Model.rules`. A field that is not required is optional and not nullable, unless its annotation says so;
a default of "" stands for absence and is none of the API server's business.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect as types

from subnetes.api.docstrings import class_text, field_texts
from subnetes.api.meta import Object, ObjectMeta
from subnetes.api.model import UNKNOWN, Model

Schema = dict[str, Any]

_RULES = "x-kubernetes-validations"


def openapi_v3_schema(kind: type[Object]) -> Schema:
    """The schema of a whole object."""
    whole = _of(types.type_info(kind))
    whole["properties"]["metadata"] = {"type": "object"}  # the API server knows it and lets nobody say more
    return whole


def _struct(info: types.StructType) -> Schema:
    if info.cls is ObjectMeta:
        return {}
    assert issubclass(info.cls, Model)
    texts = field_texts(info.cls)
    fields = [field for field in info.fields if field.encode_name != UNKNOWN]
    properties = {field.encode_name: _property(field, texts.get(field.name, "")) for field in fields}
    required = [field.encode_name for field in fields if field.required]
    schema: Schema = {"description": class_text(info.cls), "type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if info.cls.rules:
        schema[_RULES] = [rule.to_schema() for rule in info.cls.rules]
    return schema


def _property(field: types.Field, text: str) -> Schema:
    schema = _of(field.type)
    if field.default not in (msgspec.NODEFAULT, None, ""):
        schema["default"] = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        schema["default"] = _default_struct(schema)
    return {"description": text} | {key: value for key, value in schema.items() if key != "description"}


def _default_struct(schema: Schema) -> Schema:
    """Spelled out: the API server holds a default against the rules before it fills in what is inside."""
    inside = schema.get("properties", {})
    return {name: each["default"] for name, each in inside.items() if "default" in each}


def _of(info: types.Type) -> Schema:
    build = _BUILDERS.get(type(info))
    if build is None:
        raise TypeError(f"no CRD schema can carry {info}")
    return build(info)


def _annotated(info: types.Metadata) -> Schema:
    return _of(info.type) | (info.extra_json_schema or {})


def _optional(info: types.UnionType) -> Schema:
    (some,) = (each for each in info.types if not isinstance(each, types.NoneType))
    return _of(some)


def _integer(info: types.IntType) -> Schema:
    return {"type": "integer", "format": "int64"} | _bounds(info)


def _number(info: types.FloatType) -> Schema:
    return {"type": "number"} | _bounds(info)


def _bounds(info: types.IntType | types.FloatType) -> Schema:
    bounds = {"minimum": info.ge, "maximum": info.le}
    if info.gt is not None:
        bounds |= {"minimum": info.gt, "exclusiveMinimum": True}
    return _stated(bounds)


def _string(info: types.StrType) -> Schema:
    limits = {"minLength": info.min_length, "maxLength": info.max_length, "pattern": info.pattern}
    return {"type": "string"} | _stated(limits)


def _list(info: types.ListType) -> Schema:
    limits = {"minItems": info.min_length, "maxItems": info.max_length}
    return {"type": "array", "items": _of(info.item_type)} | _stated(limits)


def _map(info: types.DictType) -> Schema:
    return {"type": "object", "additionalProperties": _of(info.value_type)}


def _stated(keywords: Schema) -> Schema:
    return {name: value for name, value in keywords.items() if value is not None}


_BUILDERS: dict[type[types.Type], Callable[[Any], Schema]] = {
    types.StructType: _struct,
    types.Metadata: _annotated,
    types.UnionType: _optional,
    types.IntType: _integer,
    types.FloatType: _number,
    types.BoolType: lambda _: {"type": "boolean"},
    types.StrType: _string,
    types.ListType: _list,
    types.DictType: _map,
}

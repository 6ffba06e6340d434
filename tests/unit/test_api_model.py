"""Nothing is lost between the wire and the structs, whatever somebody added at whatever depth."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from subnetes.api.core import ConfigMap, Event, Lease, Secret
from subnetes.api.crd import KINDS
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.meta import Object, Status
from subnetes.api.model import UNKNOWN, Model, decode, encode, from_builtins, to_builtins

Documents = st.SearchStrategy[Any]

WRITTEN: list[type[Model]] = [
    *(kind for versions in KINDS for kind in versions),
    Lease,
    Event,
    Secret,
    ConfigMap,
    CustomResourceDefinition,
    Status,
]

_TEXT = st.text("abcz-é", min_size=1, max_size=5)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=3,
)
_EXTRA = st.dictionaries(_TEXT.map("x-{}".format), _JSON, max_size=2)


def documents(info: types.Type, extra: Documents) -> Documents:
    """Documents that fit the type, with `extra` fields in every object of it."""
    return _STRATEGIES[type(info)](info, extra)


def _struct(info: types.StructType, extra: Documents) -> Documents:
    fields = [field for field in info.fields if field.encode_name != UNKNOWN]
    always = {f.encode_name: documents(f.type, extra) for f in fields if _always_written(f)}
    sometimes = {f.encode_name: _unlike_default(f, extra) for f in fields if not _always_written(f)}
    if issubclass(info.cls, Object):
        resource = info.cls.resource
        del sometimes["apiVersion"], sometimes["kind"]
        always |= {"apiVersion": st.just(resource.api_version), "kind": st.just(resource.kind)}
    known = st.fixed_dictionaries(always, optional=sometimes)
    return st.tuples(known, extra).map(lambda parts: {**parts[1], **parts[0]})


def _unlike_default(field: types.Field, extra: Documents) -> Documents:
    """A default is not written, so a document that spells one out would come back without it."""

    def differs(value: Any) -> bool:
        return bool(value != field.default)

    return documents(field.type, extra).filter(differs)


def _always_written(field: types.Field) -> bool:
    structs = field.default_factory not in (msgspec.NODEFAULT, list, dict)
    return field.required or structs


def _string(info: types.StrType, _: Documents) -> Documents:
    if info.pattern:
        return st.from_regex(info.pattern, fullmatch=True).filter(lambda text: 0 < len(text) <= 15)
    return st.text("abc", min_size=1, max_size=min(info.max_length or 5, 5))


def _integer(info: types.IntType, _: Documents) -> Documents:
    return st.integers(-9 if info.ge is None else info.ge, 9000 if info.le is None else info.le)


def _number(info: types.FloatType, _: Documents) -> Documents:
    low = 0.001 if info.gt is not None else (-9.0 if info.ge is None else float(info.ge))
    return st.floats(low, 9.0 if info.le is None else float(info.le))


def _list(info: types.ListType, extra: Documents) -> Documents:
    return st.lists(documents(info.item_type, extra), min_size=info.min_length or 1, max_size=2)


def _map(info: types.DictType, extra: Documents) -> Documents:
    return st.dictionaries(_TEXT, documents(info.value_type, extra), min_size=1, max_size=2)


def _optional(info: types.UnionType, extra: Documents) -> Documents:
    (some,) = (each for each in info.types if not isinstance(each, types.NoneType))
    return documents(some, extra)


_STRATEGIES: dict[type, Callable[[Any, Documents], Documents]] = {
    types.StructType: _struct,
    types.StrType: _string,
    types.IntType: _integer,
    types.FloatType: _number,
    types.BoolType: lambda *_: st.booleans(),
    types.BytesType: lambda *_: st.binary(max_size=4).map(lambda data: base64.b64encode(data).decode()),
    types.AnyType: lambda *_: _JSON,
    types.ListType: _list,
    types.DictType: _map,
    types.UnionType: _optional,
    types.Metadata: lambda info, extra: documents(info.type, extra),
}

several = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITTEN, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
class TestEveryKind:
    @several
    @given(data=st.data())
    def test_comes_back_as_it_went(self, kind: type[Model], data: st.DataObject) -> None:
        document = data.draw(documents(types.type_info(kind), st.just({})))
        assert to_builtins(from_builtins(kind, document)) == document
        sent = msgspec.json.encode(document)
        assert msgspec.json.decode(encode(decode(kind, sent))) == document

    @several
    @given(data=st.data())
    def test_keeps_what_it_does_not_know_when_a_known_field_changes(
        self, kind: type[Model], data: st.DataObject
    ) -> None:
        document = data.draw(documents(types.type_info(kind), _EXTRA))
        value = decode(kind, msgspec.json.encode(document))
        assert to_builtins(value) == document
        if isinstance(value, Object):
            value.metadata.labels = {"changed": "yes"}
            document["metadata"]["labels"] = {"changed": "yes"}
        else:
            assert isinstance(value, Status)
            value.reason = document["reason"] = "Changed"
        assert msgspec.json.decode(encode(value)) == document


def test_a_value_that_does_not_fit_is_refused_by_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.data"):
        decode(ConfigMap, b'{"metadata": {}, "data": {"a": 1}}')


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(ConfigMap, b"{")

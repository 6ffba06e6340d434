"""Selectors and patches beside the real kube-apiserver: the same verdict, in the same words."""

import json
from typing import Any

import pytest

from subnetes.apiserver.patch import json_patch, merge_patch
from subnetes.apiserver.selectors import parse_fields, parse_labels
from subnetes.apiserver.status import Failure
from tests.harness.control_plane import ControlPlane
from tests.harness.rest import JSON_PATCH, MERGE, Rest
from tests.harness.widgets import GROUP, collection, install, widget, widget_crd

LABELS = [
    *["", ",", ",a", "a,", "a,,b", "a", "a=b", "a==", "a=b=c", "a!=b", "a !=b", "a b", "a=b c", "a=b!", "=b"],
    *["a in (b,c)", "a in(b)", "a in ()", "a in (b,)", "a in (,b)", "a in (,)", "a in (b,,c)"],
    *["a in b", "a in (b", "a in", "a in ((b)", "a notin", "a notin (b)", "in in (in)", "notin", "a=in"],
    *["!", "!a", "! a", "!!a", "!a=b", "!(a)", "(a)", "a!b", "a!", "a=(b)"],
    *["a>x", "a>=1", "a in (b),!c,d=e"],
    *["_a", "a_", "-a", "/a", "a/", "a/b", "a/b/c", "A/b", "A/", "a.b/c-d_e", "x" * 64],
    *["a=-b", "a=%", "a=ä", "a='b'", "a=" + "x" * 64, "a in (-b)"],
]
NAME = "metadata.name"
FIELDS = [
    *[
        "",
        ",",
        "metadata.namespace=b",
        "spec.foo=1",
        "metadata.uid=1",
        NAME,
        "a,b",
        "=a",
        "x!=1",
        f" {NAME}=a",
    ],
    *[
        NAME + rest
        for rest in ("=a", "==a", "!=a", "=", "=a,", "=a,spec.x=2", "=a=b", " = a", ">a", "!a", "===a")
    ],
    *[NAME + rest for rest in ("=a\\,b", "=a\\=b", "=a\\x", "=a\\")],
]
SPEC = {"size": 1, "free": {"tags": ["x", "y", "z"], "x/y": 1, "t~z": 2, "n": None}}


def _op(op: str, path: Any = None, value: Any = ..., origin: Any = None) -> dict[str, Any]:
    entry = {"op": op} | ({} if path is None else {"path": path}) | ({} if value is ... else {"value": value})
    return entry if origin is None else entry | {"from": origin}


OPS: list[Any] = [
    *(_op("test", "/spec/size", value) for value in (1, 2, 1.0, True)),
    *(_op("test", f"/spec/{path}", None) for path in ("free/n", "q/r", "size/r", "free/tags/9")),
    _op("test", "/spec/free/tags", ["x", "y", "z"]),
    *(
        _op("remove", f"/spec/{path}")
        for path in ("zz", "q/zz", "free/tags/5", "free/tags/-", "free/tags/x", "free/tags/0")
    ),
    *(
        _op("replace", f"/spec/{path}", "v")
        for path in ("free/n", "q/zz", "free/tags/9", "free/tags/1", "free/tags/-")
    ),
    *(_op("add", f"/spec/free/tags/{index}", "v") for index in ("-", "1", "3", "4", "-9", "x")),
    *(_op("add", f"/spec/free/{name}", 9) for name in ("x~1y", "t~0z", "~01", "n/m")),
    _op("add", "/spec/q/r", 9),
    _op("move", "/spec/free/b", origin="/spec/free/t~0z"),
    _op("move", "/spec/free/b", origin="/spec/zz"),
    _op("move", "/spec/free/b", origin="/spec/free"),
    _op("move", "/spec/free/tags/2", origin="/spec/free/tags/0"),
    _op("move", "/spec/free/b"),
    _op("copy", "/spec/free/b", origin="/spec/q/zz"),
    _op("copy", "/spec/q/b", origin="/spec/size"),
    _op("copy", "/spec/free/tags/-", origin="/spec/free/tags/0"),
    _op("bogus", "/spec/b"),
    _op("add", value=1),
    _op("add", "", {}),
    _op("remove", ""),
    {"path": "/spec/b"},
    1,
]
MERGES: list[Any] = [
    {"spec": {"size": 2, "free": {"n": None, "z": {"q": None, "w": 1}}}},
    {"spec": {"free": {"deep": {"er": None}, "list": [{"a": None}]}}},
    {"spec": {"free": {"tags": None}}},
    [1],
    "x",
    None,
    3,
    True,
]


@pytest.fixture(scope="module")
def rest(real: ControlPlane) -> Rest:
    client = Rest(real.url, real.ca_file, real.token)
    install(client, widget_crd())
    client.post(collection("default"), widget("words", SPEC))
    return client


def _verdict(attempt: Any) -> tuple[int, str | None]:
    try:
        attempt()
    except Failure as failure:
        return failure.code, failure.message
    return 200, None


@pytest.mark.parametrize("selector", LABELS)
def test_a_label_selector_is_understood_or_refused_as_by_kubernetes(rest: Rest, selector: str) -> None:
    answer = rest.get(f"/apis/{GROUP}/v1/widgets", labelSelector=selector)
    code, message = _verdict(lambda: parse_labels(selector))
    assert code == answer.code
    if message and "Invalid value" in message:  # what does not parse at all is explained in our own words
        assert message == answer.json["message"]


@pytest.mark.parametrize("selector", FIELDS)
def test_a_field_selector_is_understood_or_refused_as_by_kubernetes(rest: Rest, selector: str) -> None:
    answer = rest.get(f"/apis/{GROUP}/v1/widgets", fieldSelector=selector)
    supported = ("metadata.name", "metadata.namespace")
    assert _verdict(lambda: parse_fields(selector, supported)) == (answer.code, answer.json.get("message"))


def _compare(rest: Rest, content_type: str, apply: Any, body: Any) -> None:
    path = f"{collection('default')}/words"
    base = rest.get(path).ok()
    answer = rest.patch(path, json.dumps(body).encode(), content_type, dryRun="All")
    if answer.code == 200:
        expected = {"size": 3} | apply(base, body)["spec"]  # the size's default, where the patch removed it
        assert expected == answer.json["spec"]
        return
    code, message = _verdict(lambda: apply(base, body))
    assert code == answer.code
    if code != 400:  # what cannot be read is explained in our own words
        assert message == answer.json["message"]


@pytest.mark.parametrize("op", OPS, ids=json.dumps)
def test_a_json_patch_does_what_it_does_in_kubernetes(rest: Rest, op: Any) -> None:
    _compare(rest, JSON_PATCH, json_patch, [op])


@pytest.mark.parametrize("patch", MERGES, ids=json.dumps)
def test_a_merge_patch_does_what_it_does_in_kubernetes(rest: Rest, patch: Any) -> None:
    _compare(rest, MERGE, merge_patch, patch)

"""The native executable, with a C library and as it is shipped, and the Python fallback do the same with the
same input, whatever it is.

DEL without an agent shows all that they decide: what they take for JSON, which socket they find (the queue is
named after it), what they would send (the queue holds it), what they print.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from subnetes.cni import fallback as module
from tests.cni.execution import Plugin
from tests.cni.requests import environment

pytestmark = pytest.mark.slow

HERE = "@HERE@"  # stands for the folder of the example

names = st.sampled_from(["ipam", "socket", "cniVersion", "name", "é", "ipam2"]) | st.text(max_size=3)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(
        [f"{HERE}/a.sock", f"{HERE}/ü/b.sock", f"{HERE}/" + "x" * 90, "relative", "1.0.0", "0.3.1"]
    )
)
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "cniVersion": st.sampled_from(["0.3.1", "0.4.0", "1.0.0", "1.1.0", "0.1.0", "1.1.0 "]) | leaves,
        "ipam": st.dictionaries(st.just("socket") | names, leaves, max_size=3) | documents,
        "name": leaves,
        "x": documents,
    },
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A config as some library writes it; now and then with a piece cut out, doubled or replaced."""
    document = draw(configs | documents)
    indent, ascii_only = draw(st.sampled_from([None, 0, 2])), draw(st.booleans())
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    if draw(st.booleans()):
        text = text.replace("/", draw(st.sampled_from(["\\/", "\\u002f", "/"])))
    made = text.encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 2)):
        return made
    start, end = draw(st.integers(0, len(made))), draw(st.integers(0, len(made)))
    return (
        made[:start] + draw(st.sampled_from([b"", b",", b'"', b"\\", b"\xff", b"0", b"[", b"}"])) + made[end:]
    )


JSON_LIKE = [b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"true", b"null", b"NaN", b"\xef\xbb\xbf"]
STRINGS = [b'"ipam"', b'"socket"', b'"cniVersion"', b'"1.0.0"', b'"@HERE@/s"', b'"\\u0069pam"']
ODD_STRINGS = [b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\x"', b'"\t"', b'"\xe2\x82\xac"', b"\xed\xa0\x80"]
NUMBERS = [b"1", b"-0", b"01", b"1.", b"1e5", b"-"]
pieces = st.lists(st.sampled_from(JSON_LIKE + STRINGS + ODD_STRINGS + NUMBERS), max_size=14).map(b"".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts() | pieces.map(lambda inside: b"{" + inside + b"}") | pieces | st.binary(max_size=20))
@example(b'{"ipam":{"socket":"@HERE@/a"},"ipam":{"socket":"@HERE@/b"}}')
@example(b'{"ipam":{"socket":"@HERE@/a","socket":1}}')
@example(b'{"ipam":{"socket":1},"ipam":null}')
@example(b'{"cniVersion":"1.0.0","cniVersion":"0.4.0","ipam":{"socket":""}}')
@example(b'{"cniVersion":"1.0.0","ipam":')
@example(b'{"x":' + b"[" * 99 + b"]" * 99 + b"}")
@example(b'{"x":' + b"[" * 100 + b"]" * 100 + b"}")
@example(b'{"x":1' + b"0" * 6000 + b"}")
@example(b'{"ipam":{"ipam":{"socket":"@HERE@/deep"}}}')
@example(b'{"x":{"ipam":{"socket":"@HERE@/deep"}}}')
@example(b'{"x":"\x7f\xc2\x80\xf4\x8f\xbf\xbf"}')
@example(b'{"x":"\xf4\x90\x80\x80"}')
def test_they_agree(native: Plugin, shipped: Plugin, fallback: Plugin, text: bytes) -> None:
    assert seen_of(native, text) == seen_of(shipped, text) == seen_of(fallback, text)


def seen_of(plugin: Plugin, text: bytes) -> Any:
    """Exit code, output, and every file that was left behind, names without what is random in them."""
    folder = Path(tempfile.mkdtemp(prefix="cni-"))
    try:
        here = str(folder).encode()
        variables = environment("DEL", SUBNETES_SOCKET=f"{folder}/default.sock")
        done = plugin.run(variables, text.replace(HERE.encode(), here))
        left = {
            str(each.parent.relative_to(folder)): each.read_bytes().replace(here, b"")
            for each in folder.rglob("*")
            if each.is_file()
        }
        return done.code, done.text.replace(here, b""), left
    finally:
        shutil.rmtree(folder)


def test_a_difference_would_be_seen(
    native: Plugin, fallback: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_DEPTH", 1)
    text = b'{"ipam":{"socket":"@HERE@/a"}}'
    assert seen_of(native, text) != seen_of(fallback, text)

"""Label and field selectors: what they match, and how they refuse."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subnetes.apiserver.selectors import LabelSelector, Requirement, parse_fields, parse_labels
from subnetes.apiserver.status import Failure

KEYS = st.sampled_from(["a", "in", "notin", "app.io/name", "x_y", "z-1"])
TEXTS = st.sampled_from(["", "b", "in", "v1.2", "7", "1_2"])
REQUIREMENTS = st.one_of(
    st.builds(Requirement, KEYS, st.sampled_from(["exists", "!"])),
    st.builds(Requirement, KEYS, st.sampled_from(["in", "notin"]), st.frozensets(TEXTS, min_size=1)),
)
LABELS = st.dictionaries(KEYS, TEXTS, max_size=4)


def _printed(requirement: Requirement) -> str:
    key, values = requirement.key, ",".join(sorted(requirement.values))
    match requirement.operator:
        case "exists":
            return key
        case "!":
            return f"!{key}"
        case operator:
            return f"{key} {operator} ({values})"


@given(st.lists(REQUIREMENTS, max_size=4))
def test_a_printed_selector_parses_to_itself(requirements: list[Requirement]) -> None:
    assert parse_labels(", ".join(map(_printed, requirements))) == LabelSelector(tuple(requirements))


@given(st.lists(REQUIREMENTS, max_size=3), st.lists(REQUIREMENTS, max_size=3), LABELS)
def test_a_comma_means_and(left: list[Requirement], right: list[Requirement], labels: dict[str, str]) -> None:
    both = LabelSelector((*left, *right)).matches(labels)
    assert both == (
        LabelSelector(tuple(left)).matches(labels) and LabelSelector(tuple(right)).matches(labels)
    )


@given(KEYS, st.frozensets(TEXTS, min_size=1), LABELS)
def test_notin_is_the_opposite_of_in(key: str, values: frozenset[str], labels: dict[str, str]) -> None:
    assert Requirement(key, "in", values).matches(labels) != Requirement(key, "notin", values).matches(labels)


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a=b", {}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a=", {"a": ""}, True),
        ("a in ()", {"a": ""}, True),
        ("a in (b,)", {"a": ""}, True),
        ("a in (b, c)", {"a": "c"}, True),
        ("a notin (b)", {}, True),
        ("a", {"a": ""}, True),
        ("! a", {"b": "c"}, True),
        ("a in (b),!c , d = e", {"a": "b", "d": "e"}, True),
        ("in in (in)", {"in": "in"}, True),
    ],
)
def test_labels_match_as_in_kubernetes(selector: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_labels(selector).matches(labels) is matches


@pytest.mark.parametrize(
    "selector",
    [
        ",",
        ",a",
        "a,",
        "a,,b",
        "a b",
        "a=b c",
        "a=b=c",
        "a in b",
        "a in (b",
        "ain (b)",
        "!",
        "!a=b",
        "(a)",
        "a>1",
    ],
)
def test_what_is_no_label_selector_is_refused_and_shown(selector: str) -> None:
    with pytest.raises(Failure, match=r"^unable to parse requirement: found '.*', expected: key") as caught:
        parse_labels(selector)
    assert caught.value.code == 400


def test_a_bad_key_is_refused_in_kubernetes_words() -> None:
    with pytest.raises(Failure) as caught:
        parse_labels("/a")
    words = 'unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty'
    assert (caught.value.code, caught.value.message) == (400, words)


def _code(text: str) -> int:
    try:
        parse_labels(text).matches({"a": "b"})
        parse_fields(text, {"a", "b"}).matches({"a": "b"})
    except Failure as failure:
        return failure.code
    return 200


@given(st.text(alphabet="ab=!(),<> in/\\", max_size=12))
def test_any_text_is_a_selector_or_a_bad_request(text: str) -> None:
    assert _code(text) in (200, 400)


POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {"nodeName": "n", "hostNetwork": True},
    "status": None,
}
FIELDS = ("metadata.name", "spec.nodeName", "spec.hostNetwork", "status.phase")


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("metadata.name=p", True),
        ("metadata.name==q", False),
        ("metadata.name!=q,spec.nodeName=n", True),
        ("spec.hostNetwork=true", True),
        ("status.phase=", True),
        ("metadata.name=p,metadata.name=q", False),
        ("metadata.name=a\\,b", False),
    ],
)
def test_fields_match_as_in_kubernetes(selector: str, matches: bool) -> None:
    assert parse_fields(selector, FIELDS).matches(POD) is matches


def test_the_fields_that_must_be_equal_can_be_indexed() -> None:
    selector = parse_fields("spec.nodeName=a\\=b,metadata.name!=c,status.phase==Running", FIELDS)
    assert selector.equals == {"spec.nodeName": "a=b", "status.phase": "Running"}


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("spec.foo=1", "field label not supported: spec.foo"),
        ("a,b", "invalid selector: 'a,b'; can't understand 'a'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
    ],
)
def test_a_bad_field_selector_is_refused_in_kubernetes_words(selector: str, message: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_fields(selector, FIELDS)
    assert (caught.value.code, caught.value.message) == (400, message)

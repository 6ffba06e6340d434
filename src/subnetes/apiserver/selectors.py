"""Label and field selectors: parsed once a request, matched against every object of a list or a watch.

What cannot be parsed is a 400 in kube-apiserver's words. `qualified_name_problems` and `label_value_problems`
say what may be a label's key and value, also where labels are written.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from subnetes.apiserver.causes import quoted
from subnetes.apiserver.status import Failure, bad_request

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_ALPHANUMERIC = "must start and end with an alphanumeric character"
_EXAMPLES = "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
_NAME_RULE = (
    f"consist of alphanumeric characters, '-', '_' or '.', and {_ALPHANUMERIC} {_EXAMPLES} '{_NAME}')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"and {_ALPHANUMERIC} (e.g. 'MyValue', "
    f" or 'my_value',  or '12345', regex used for validation is '({_NAME})?')"
)
_PREFIX_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', and {_ALPHANUMERIC} (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)


def qualified_name_problems(key: str) -> list[str]:
    """What is wrong with a label's or annotation's key."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key must {_NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')"
        ]
    problems: list[str] = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash and not re.fullmatch(_SUBDOMAIN, prefix):
        problems.append(_PREFIX_RULE)
    if not name:
        problems.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        problems.append("name part must be no more than 63 bytes")
    if not re.fullmatch(_NAME, name):
        problems.append(f"name part must {_NAME_RULE}")
    return problems


def label_value_problems(value: str) -> list[str]:
    problems = ["must be no more than 63 bytes"] if len(value.encode()) > 63 else []
    return problems if re.fullmatch(f"({_NAME})?", value) else [*problems, _VALUE_RULE]


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str  # in, notin, exists, !
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "exists")


@dataclass(frozen=True, slots=True)
class LabelSelector:
    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


_WORD = r"[^\s!(),=<>]+"
_REQUIREMENT = re.compile(
    rf"""\s*(?: !\s*(?P<absent>{_WORD})
        | (?P<key>{_WORD})(?!{_WORD})\s*
          (?: (?P<sign>==|=|!=)\s*(?P<value>(?:{_WORD})?) | (?P<set>in|notin)\s*\((?P<values>[^()]*)\) )?
        )\s*(?P<end>,|\Z)""",
    re.VERBOSE,
)


def parse_labels(text: str) -> LabelSelector:
    requirements: list[Requirement] = []
    position, end = 0, "," if text.strip() else ""
    while end == ",":
        match = _REQUIREMENT.match(text, position)
        if match is None:
            wanted = "expected: key, !key, key=value, key==value, key!=value, key in (...), key notin (...)"
            raise _unparsed(f"found '{text[position:].strip()}', {wanted}")
        requirements.append(_requirement(match))
        position, end = match.end(), match["end"]
    return LabelSelector(tuple(requirements))


def _requirement(match: re.Match[str]) -> Requirement:
    key = match["absent"] or match["key"]
    if problems := qualified_name_problems(key):
        raise _unparsed(f"<nil>: Invalid value: {quoted(key)}: {'; '.join(problems)}")
    if match["set"]:
        values = [value.strip() for value in match["values"].split(",")]
        return Requirement(key, match["set"], _checked(key, values))
    if match["sign"]:
        return Requirement(key, "notin" if match["sign"] == "!=" else "in", _checked(key, [match["value"]]))
    return Requirement(key, "!" if match["absent"] else "exists")


def _checked(key: str, values: list[str]) -> frozenset[str]:
    for index, value in enumerate(sorted(set(values))):
        if problems := label_value_problems(value):
            raise _unparsed(f"values[{index}][{key}]: Invalid value: {quoted(value)}: {'; '.join(problems)}")
    return frozenset(values)


def _unparsed(message: str) -> Failure:
    return bad_request(f"unable to parse requirement: {message}")


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Terms that must all hold; an absent field is the empty string, as in Kubernetes."""

    equals: dict[str, str] = field(default_factory=dict)
    differs: tuple[tuple[str, str], ...] = ()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        return all(field_value(obj, name) == value for name, value in self.equals.items()) and all(
            field_value(obj, name) != value for name, value in self.differs
        )


def field_value(obj: Mapping[str, Any], name: str) -> str:
    value: Any = obj
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def parse_fields(text: str, supported: Collection[str]) -> FieldSelector:
    equals: dict[str, str] = {}
    differs: list[tuple[str, str]] = []
    impossible = False
    for term in filter(None, re.findall(r"(?:[^,\\]|\\.?)+", text)):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        name, operator, value = match[1], match[2], _unescaped(match[3])
        if name not in supported:
            raise bad_request(f"field label not supported: {name}")
        if operator == "!=":
            differs.append((name, value))
        else:
            impossible |= equals.setdefault(name, value) != value
    if impossible:
        differs += list(equals.items())  # a field that must have two values matches nothing
    return FieldSelector(equals, tuple(differs))


def _unescaped(value: str) -> str:
    for match in re.finditer(r"\\(.?)|[,=]", value, re.DOTALL):
        if match[0] in (",", "="):
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(match[0])}")
        if match[1] not in ("\\", ",", "="):
            raise bad_request(f"invalid field selector: invalid escape sequence: {match[0]}")
    return re.sub(r"\\(.)", r"\1", value)

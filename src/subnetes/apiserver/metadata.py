"""The rules of `metadata`, the same for every kind: its types, what may be in it, what an update may change.

Pure: `admission.py` calls `cleaned` on what arrives, `created` or `carried_over` on what will be stored, and
collects the causes that `problems` and `immutable` return.
"""

import re
import secrets
from typing import Any, NamedTuple

import msgspec

from subnetes.apiserver import causes
from subnetes.apiserver.causes import invalid
from subnetes.apiserver.selectors import label_value_problems, qualified_name_problems
from subnetes.apiserver.status import Cause, bad_request

Object = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words are generated
_FIXED = ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")


class NameRule(NamedTuple):
    """What may be an object's name, and Kubernetes' words for it."""

    pattern: str
    longest: int
    words: str

    def problems(self, text: str) -> list[str]:
        wrong = [f"must be no more than {self.longest} characters"] if len(text) > self.longest else []
        return wrong if re.fullmatch(self.pattern, text) else [*wrong, self.words]


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_WORDS = (
    "a lowercase RFC 1123 {} must consist of lower case alphanumeric characters{} "
    "and must start and end with an alphanumeric character (e.g. {}, regex used for validation is '{}')"
)
SUBDOMAIN = NameRule(
    _SUBDOMAIN, 253, _WORDS.format("subdomain", ", '-' or '.',", "'example.com'", _SUBDOMAIN)
)
LABEL = NameRule(_LABEL, 63, _WORDS.format("label", " or '-',", "'my-name',  or '123-abc'", _LABEL))


class Owner(msgspec.Struct, rename="camel", omit_defaults=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Metadata(msgspec.Struct, rename="camel", omit_defaults=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    finalizers: list[str] | None = None


_KNOWN = {field.encode_name for field in msgspec.structs.fields(Metadata)}
_DROPPED = {"managedFields", "selfLink"}


def section(obj: Object, name: str) -> Object:
    """An object's spec or status; nothing where a client put something that is no object."""
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


def cleaned(metadata: Any) -> tuple[Object, list[str]]:
    """Known fields with values of the right type, and the paths of the unknown ones that were dropped."""
    given = {} if metadata is None else metadata
    try:
        parsed: Object = msgspec.to_builtins(msgspec.convert(given, Metadata))
    except msgspec.ValidationError as problem:
        raise bad_request(f"metadata cannot be read: {problem}") from None
    kept = {key: value for key, value in parsed.items() if value not in ({}, [], "", None)}
    return kept, [f"metadata.{key}" for key in sorted(given.keys() - _KNOWN - _DROPPED)]


def created(metadata: Object, now: str, uid: str) -> None:
    """Fill in what the server decides about a new object."""
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(5))
        metadata["name"] = metadata["generateName"][:58] + suffix
    for decided in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
        metadata.pop(decided, None)
    metadata |= {"uid": uid, "creationTimestamp": now}


def carried_over(metadata: Object, old: Object) -> None:
    """Keep what only the server may set, where the writer left it out or made it up."""
    for decided in ("generation", "creationTimestamp", "resourceVersion"):
        metadata[decided] = old.get(decided)
    for fixed in _FIXED:
        metadata.setdefault(fixed, old.get(fixed))
    for key in [key for key, value in metadata.items() if value is None]:
        del metadata[key]


def immutable(metadata: Object, old: Object) -> list[Cause]:
    """What an update changed although nobody may."""
    found = [
        invalid(_at(field), metadata.get(field), "field is immutable")
        for field in _FIXED
        if metadata.get(field) != old.get(field)
    ]
    added = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
    if added and old.get("deletionTimestamp"):
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        listed = ", ".join(map(causes.quoted, added))
        found.append(causes.forbidden(_at("finalizers"), f"{why} []string{{{listed}}}"))
    return found


def problems(metadata: Object, rule: NameRule) -> list[Cause]:
    """What is wrong with metadata by itself."""
    found: list[Cause] = []
    if prefix := metadata.get("generateName"):
        # A prefix may end in what a name may not end in, as `web-` does.
        probe = prefix[:-1] + "a" if prefix.endswith("-") else prefix
        found += _each("generateName", prefix, rule.problems(probe))
    if name := metadata.get("name"):
        found += _each("name", name, rule.problems(name))
    else:
        found.append(causes.required(_at("name"), "name or generateName is required"))
    for finalizer in metadata.get("finalizers", ()):
        found += _each("finalizers", finalizer, qualified_name_problems(finalizer))
    return found + label_problems(metadata) + _owner_problems(metadata.get("ownerReferences", []))


def label_problems(metadata: Object) -> list[Cause]:
    """What is wrong with labels and annotations."""
    found: list[Cause] = []
    for key, value in metadata.get("labels", {}).items():
        found += _each("labels", key, qualified_name_problems(key))
        found += _each("labels", value, label_value_problems(value))
    for key in metadata.get("annotations", {}):
        found += _each("annotations", key, qualified_name_problems(key.lower()))
    return found


def _owner_problems(owners: list[Object]) -> list[Cause]:
    found = [
        invalid(_at(f"ownerReferences.{field}"), "", "must not be empty")
        for owner in owners
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        why = "Only one reference can have Controller set to true"
        found.append(invalid(_at("ownerReferences"), owners, why))
    return found


def _each(field: str, value: str, wrong: list[str]) -> list[Cause]:
    return [invalid(_at(field), value, words) for words in wrong]


def _at(field: str) -> causes.Path:
    return None, f"metadata.{field}"

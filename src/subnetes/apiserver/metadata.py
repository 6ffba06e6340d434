"""The rules of `metadata`, the same for every kind: its types, what may be in it, what an update may change.

Pure: the handlers of writes call `cleaned` on what arrives, `created` or `carried_over` on what will be
stored, and collect the causes that `problems` and `immutable` return.
"""

import re
import secrets
from collections.abc import Callable
from typing import Any

import msgspec
import orjson

from subnetes.apiserver import causes
from subnetes.apiserver.causes import invalid
from subnetes.apiserver.selectors import label_value_problems, qualified_name_problems
from subnetes.apiserver.status import Cause, bad_request

Object = dict[str, Any]
NameRule = Callable[[str], list[str]]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words are generated
_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")


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


_GO_TYPES = {"str": "string", "int": "number", "float": "number", "null": "null"}
_WRONG_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`(?: - at `\$\.(\w+))?")


def cleaned(metadata: Any, kind: str, version: str) -> tuple[Object, list[str]]:
    """Known fields with values of the right type, and the names of the unknown ones that were dropped."""
    given = {} if metadata is None else metadata
    try:
        parsed: Object = msgspec.to_builtins(msgspec.convert(given, Metadata))
    except msgspec.ValidationError as problem:
        unusable = f'{kind} in version "{version}" cannot be handled as a {kind}'
        raise bad_request(
            f"{unusable}: json: cannot unmarshal {go_words(str(problem), 'ObjectMeta')}"
        ) from None
    kept = {key: value for key, value in parsed.items() if value not in ({}, [], "", None)}
    return kept, sorted(given.keys() - _KNOWN - _DROPPED)


def go_words(problem: str, struct: str) -> str:
    """msgspec's complaint about a type, as Go's JSON decoder words it."""
    match = _WRONG_TYPE.match(problem)
    if match is None:
        return problem
    wanted, got, field = match.groups()
    got, wanted = _GO_TYPES.get(got, got), _GO_TYPES.get(wanted, wanted)
    if field is None:
        return f"{got} into Go value of type v1.{struct}"
    wanted = {"array": "[]string", "object": "map[string]string", "number": "int64"}.get(wanted, wanted)
    return f"{got} into Go struct field {struct}.{field} of type {wanted}"


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
    metadata["generation"] = old.get("generation")
    metadata["creationTimestamp"] = old["creationTimestamp"]
    metadata["resourceVersion"] = old["resourceVersion"]
    for kept in ("uid", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.setdefault(kept, old.get(kept))
    for key in [key for key, value in metadata.items() if value is None]:
        del metadata[key]


def immutable(metadata: Object, old: Object) -> list[Cause]:
    """What an update changed although nobody may."""
    found = [
        invalid(_at(field), metadata.get(field), "field is immutable")
        for field in ("name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if metadata.get(field) != old.get(field)
    ]
    added = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
    if added and old.get("deletionTimestamp"):
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        why = "no new finalizers can be added if the object is being deleted, found new finalizers"
        found.append(causes.forbidden(_at("finalizers"), f"{why} []string{{{listed}}}"))
    return found


def problems(metadata: Object, rule: NameRule) -> list[Cause]:
    """What is wrong with metadata by itself."""
    found: list[Cause] = []
    if prefix := metadata.get("generateName"):
        # A prefix may end in what a name may not end in, as `web-` does.
        probe = prefix[:-1] + "a" if prefix.endswith("-") else prefix
        found += [invalid(_at("generateName"), prefix, wrong) for wrong in rule(probe)]
    if name := metadata.get("name"):
        found += [invalid(_at("name"), name, wrong) for wrong in rule(name)]
    else:
        found.append(causes.required(_at("name"), "name or generateName is required"))
    found += label_problems(metadata) + _owner_problems(metadata)
    finalizers = metadata.get("finalizers", [])
    return found + [
        invalid(_at("finalizers"), f, wrong) for f in finalizers for wrong in qualified_name_problems(f)
    ]


def finalizer_warnings(finalizers: list[str], before: list[str]) -> list[str]:
    """A finalizer is somebody's: new ones should say whose."""
    why = (
        "prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
    )
    plain = [each for each in finalizers if "/" not in each and each not in before]
    return [f'metadata.finalizers: "{each}": {why}' for each in plain if each not in _STANDARD_FINALIZERS]


def label_problems(metadata: Object) -> list[Cause]:
    """What is wrong with labels and annotations."""
    found: list[Cause] = []
    for key, value in metadata.get("labels", {}).items():
        found += [invalid(_at("labels"), key, wrong) for wrong in qualified_name_problems(key)]
        found += [invalid(_at("labels"), value, wrong) for wrong in label_value_problems(value)]
    annotations = metadata.get("annotations", {})
    for key in annotations:
        found += [invalid(_at("annotations"), key, wrong) for wrong in qualified_name_problems(key.lower())]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    return found + (
        [causes.too_long(_at("annotations"), _ANNOTATIONS_LIMIT)] if size > _ANNOTATIONS_LIMIT else []
    )


def _owner_problems(metadata: Object) -> list[Cause]:
    owners = metadata.get("ownerReferences", [])
    found: list[Cause] = []
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.count("/") > 1 or version.endswith("/"):
            found.append(invalid(_at("ownerReferences.apiVersion"), version, "version must not be empty"))
        empty = [field for field in ("kind", "name", "uid") if not owner.get(field)]
        found += [invalid(_at(f"ownerReferences.{field}"), "", "must not be empty") for field in empty]
    in_charge = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(in_charge) > 1:
        why = 'Only one reference can have Controller set to true. Found "true" in references for'
        # Not causes.invalid, which sorts keys: Go writes these in the order of its struct.
        message = f"Invalid value: {orjson.dumps(owners).decode()}: {why} {in_charge[0]} and {in_charge[1]}"
        found.append(Cause("FieldValueInvalid", "metadata.ownerReferences", message))
    return found


def _at(field: str) -> causes.Path:
    return None, f"metadata.{field}"

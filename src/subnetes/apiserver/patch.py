"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902) of plain JSON values, for the handlers of PATCH.

Where kube-apiserver is laxer than the RFCs (negative indices, `replace` of an absent field, an absent
`value`) this is not: a patch that leans on that is rejected here.
"""

import copy
import json
from collections.abc import Callable
from typing import Any

from subnetes.apiserver.status import Failure

_REJECTED = "the server rejected our request due to an error in our request"


class PatchError(Failure):
    """A patch that cannot be read (400) or does not apply (422, which Kubernetes does not explain)."""


def _rejected() -> PatchError:
    return PatchError(422, "Invalid", _REJECTED, {})


def _unreadable(wanted: str) -> PatchError:
    return PatchError(400, "BadRequest", f"error decoding patch: it must be {wanted}")


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch merged in: null deletes, lists and scalars replace, objects recurse."""
    if not isinstance(patch, dict):
        raise _unreadable("an object")
    return _merge(target, patch)


def _merge(target: Any, patch: Any) -> Any:
    if isinstance(patch, list):
        return [_merge(None, item) for item in patch]  # Kubernetes drops the nulls of objects in lists, too
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def json_patch(target: Any, ops: Any) -> Any:
    """The target after these operations, all or none; neither argument is changed."""
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise _unreadable("a list of operations")
    patched = copy.deepcopy(target)
    for op in ops:
        apply = _OPERATIONS.get(str(op.get("op")))
        if apply is None:
            raise _rejected()
        try:
            apply(patched, op)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError) as missing:
            raise _rejected() from missing
    return patched


def _place(document: Any, pointer: str) -> tuple[Any, Any]:
    """The container that a JSON pointer points into, and the name or index of the place in it."""
    root, *names = (name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/"))
    if root or not names:
        raise ValueError(pointer)
    for name in names[:-1]:
        document = document[_index(document, name)]
    return document, _index(document, names[-1])


def _index(container: Any, name: str) -> str | int:
    if isinstance(container, dict):
        return name
    if isinstance(container, list) and name == "-":
        return len(container)
    if not (isinstance(container, list) and name.isascii() and name.isdigit()):
        raise ValueError(name)
    return int(name)


def _get(document: Any, pointer: str) -> Any:
    container, name = _place(document, pointer)
    return container[name]


def _put(document: Any, pointer: str, value: Any) -> None:
    container, name = _place(document, pointer)
    if isinstance(container, dict):
        container[name] = value
    elif name <= len(container):
        container.insert(name, value)
    else:
        raise IndexError(name)


def _replace(document: Any, op: Any) -> None:
    container, name = _place(document, op["path"])
    container[name]  # it must be there
    container[name] = copy.deepcopy(op["value"])


def _move(document: Any, op: Any) -> None:
    container, name = _place(document, op["from"])
    _put(document, op["path"], container.pop(name))


def _test(document: Any, op: Any) -> None:
    found, wanted = _get(document, op["path"]), op["value"]
    if json.dumps(found, sort_keys=True) != json.dumps(wanted, sort_keys=True):  # 1 is neither 1.0 nor true
        raise ValueError(wanted)


def _remove(document: Any, op: Any) -> None:
    container, name = _place(document, op["path"])
    del container[name]


_OPERATIONS: dict[str, Callable[[Any, Any], None]] = {
    "add": lambda document, op: _put(document, op["path"], copy.deepcopy(op["value"])),
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": lambda document, op: _put(document, op["path"], copy.deepcopy(_get(document, op["from"]))),
    "test": _test,
}

"""The texts written under classes and fields in this package, for the schemas' descriptions.

Python keeps no docstrings of fields, so they are read from the source, which every installation has.
"""

import ast
import inspect
import sys
from functools import cache

Texts = dict[str, str]


def class_text(cls: type) -> str:
    """The docstring of a class as one line."""
    return _module_texts(cls.__module__)[cls.__qualname__].get("", "")


def field_texts(cls: type) -> Texts:
    """The docstrings of the class's fields by attribute name, inherited ones included."""
    texts: Texts = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("subnetes."):
            texts |= _module_texts(base.__module__).get(base.__qualname__, {})
    return {name: text for name, text in texts.items() if name}


@cache
def _module_texts(module: str) -> dict[str, Texts]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _class_texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_texts(node: ast.ClassDef) -> Texts:
    """The texts of the class's fields, and under "" its own."""
    texts = {"": _one_line(ast.get_docstring(node) or "")}
    for before, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            text = _string(after)
            if text:
                texts[before.target.id] = _one_line(text)
    return texts


def _string(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else ""
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())

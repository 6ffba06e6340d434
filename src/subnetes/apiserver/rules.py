"""x-kubernetes-validations: the rules of a CRD that span fields, in the Common Expression Language.

`schema` compiles them with the CEL project's own library. What that cannot run, and what we leave out, is not
guessed at: the rule goes to `unenforced`.
"""

import re
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_strings

from subnetes.apiserver import causes
from subnetes.apiserver.causes import Path
from subnetes.apiserver.formats import is_cidr, is_ip
from subnetes.apiserver.status import Cause

Json = dict[str, Any]


def _predicate(name: str, holds: Any) -> cel.FunctionDecl:
    overload = cel.Overload(name.lower(), cel.Type.BOOL, [cel.Type.STRING], False, holds)
    return cel.FunctionDecl(name, [overload])


_ENVIRONMENT = cel.NewEnv(
    variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN},
    extensions=[ext_strings.ExtStrings()],
    functions=[_predicate("isIP", is_ip), _predicate("isCIDR", is_cidr)],
)
_WORDS = {"FieldValueForbidden": "Forbidden", "FieldValueRequired": "Required value"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule at one place of the schema."""

    expression: cel.Expression
    transition: bool  # it speaks of oldSelf
    fields: frozenset[str]  # those that it looks at; "" among them means the whole value
    numbers: frozenset[str]  # those that are floating-point numbers also when written without a point
    type: str
    detail: str
    field_path: str
    reason: str

    def apply(self, value: Any, path: Path, old: Any, out: list[Cause]) -> None:
        if self.transition and old is None:
            return
        verdict = self.expression.eval(data={"self": self._seen(value), "oldSelf": self._seen(old)})
        if verdict.type() == cel.Type.ERROR:
            detail = f"{verdict.value()} evaluating rule: {self.detail}"
            out.append(causes.invalid(path, self.type, detail))
        elif verdict.value() is not True:
            out.append(self._cause(value, (path, self.field_path) if self.field_path else path))

    def _seen(self, value: Any) -> Any:
        """Handing over costs a microsecond a value, so only what the rule names; a null field is absent."""
        if not isinstance(value, dict):
            return float(value) if self.type == "number" and value is not None else value
        names = value.keys() if "" in self.fields else self.fields & value.keys()
        seen = {name: value[name] for name in names if value[name] is not None}
        return seen | {name: float(seen[name]) for name in self.numbers & seen.keys()}

    def _cause(self, value: Any, path: Path) -> Cause:
        if self.reason in _WORDS:
            return causes.cause(self.reason, path, _WORDS[self.reason], self.detail)
        if self.type in ("object", "array"):
            return causes.cause("FieldValueInvalid", path, "Invalid value", self.detail)
        return causes.invalid(path, value, self.detail)


def compile_rules(schema: Json, unenforced: list[str], *, in_list: bool) -> list[Rule]:
    """The rules at this place; there is no old value for those that are below a list."""
    rules: list[Rule] = []
    for spec in schema.get("x-kubernetes-validations", ()):
        text = spec["rule"].strip()
        transition = re.search(r"\boldSelf\b", text) is not None
        try:
            expression = _ENVIRONMENT.compile(text)
        except RuntimeError as problem:
            unenforced.append(f"rule: {text} ({str(problem).splitlines()[0]})")
            continue
        if spec.get("optionalOldSelf") or (transition and in_list):
            unenforced.append(f"rule: {text} (no old value here)")
            continue
        rules.append(
            Rule(
                expression=expression,
                transition=transition,
                fields=frozenset(re.findall(r"\b(?:self|oldSelf)\b(?:\.(\w+)\b(?!\s*\())?", text)),
                numbers=frozenset(
                    name
                    for name, each in schema.get("properties", {}).items()
                    if each.get("type") == "number"
                ),
                type=schema.get("type", ""),
                detail=spec.get("message", "").strip() or f"failed rule: {text}",
                field_path=spec.get("fieldPath", "").removeprefix("."),
                reason=spec.get("reason", ""),
            )
        )
    return rules

"""What a kind says about itself beyond its fields: the rules between fields, the columns kubectl prints.

Declared beside the structs (`Model.rules`, `Object.columns`); `schema` and `crd` read it to make the CRDs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule. `rule` keeps to what the embedded API server can enforce too."""

    rule: str
    message: str
    field_path: str = ""

    def to_schema(self) -> dict[str, str]:
        entry = {"rule": self.rule, "message": self.message}
        return entry | ({"fieldPath": self.field_path} if self.field_path else {})


def immutable(field: str) -> Rule:
    """A required field that keeps the value it was created with."""
    return Rule(f"self.{field} == oldSelf.{field}", f"{field} cannot be changed", f".{field}")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one shows with `-o wide` only."""

    name: str
    json_path: str
    type: str = "string"
    wide: bool = False


AGE = Column("Age", ".metadata.creationTimestamp", "date")
READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status')

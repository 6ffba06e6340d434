"""Label selectors, in Kubernetes' own form, as a ClusterSubnet chooses its nodes with one."""

from typing import Annotated, ClassVar

from msgspec import Meta

from subnetes.api.declaration import Rule
from subnetes.api.limits import ATOMIC_LIST, ATOMIC_MAP, one_of
from subnetes.api.model import Model

_LABEL_VALUE = Annotated[str, Meta(max_length=63)]


class LabelRequirement(Model, kw_only=True):
    """What one label must be."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
            "In and NotIn need values, Exists and DoesNotExist have none",
            ".values",
        ),
    )

    key: Annotated[str, Meta(min_length=1, max_length=317)]
    """The label."""
    operator: Annotated[str, one_of("In", "NotIn", "Exists", "DoesNotExist")]
    """How the label's value relates to the values here."""
    values: Annotated[list[_LABEL_VALUE], Meta(max_length=64), ATOMIC_LIST] | None = None
    """The values, for In and NotIn."""


class LabelSelector(Model):
    """Chooses objects by their labels. All that is stated must hold; if nothing is, all are chosen."""

    match_labels: Annotated[dict[str, str], ATOMIC_MAP] | None = None
    """Labels with the value that each must have."""
    match_expressions: Annotated[list[LabelRequirement], Meta(max_length=64), ATOMIC_LIST] | None = None
    """What else must hold of labels."""

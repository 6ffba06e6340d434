"""Whether all NNCs of v1alpha survive the migration: each must convert, and nothing of it be pruned.

Asked before the CRD is updated, for afterwards a single NNC that cannot be converted fails every list in
v1beta1, and what our v1alpha does not have is gone with the next write.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from subnetes.api import conversion, migration
from subnetes.api.conversion import convert
from subnetes.api.migration import HUB, OLD, Crd, Stage
from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.api.pruning import Schema, lost, pruned, version_schema
from subnetes.cli.connection import CannotGoOn
from subnetes.kube.client import Client

NAMED = 5  # of those that cannot be migrated

Object = dict[str, Any]


@dataclass
class Findings:
    count: int = 0
    refused: dict[str, str] = field(default_factory=dict)  # why, by namespace/name
    users: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # of what goes, by path


async def check(client: Client, crd: Crd | None, wanted: Crd) -> None:
    """Says that all can be migrated; raises CannotGoOn if not, or if that would take something away."""
    now = migration.standing(crd)
    if crd is None or now.storage != OLD or now.stage not in (Stage.OLD_ONLY, Stage.CONVERTED):
        return
    resource = replace(NodeNetworkConfig.resource, version=OLD)
    ours = version_schema(wanted, OLD)
    found = findings((await client.list(resource)).items, ours)
    if found.refused:
        raise CannotGoOn(
            f"{len(found.refused)} of {found.count} NNCs cannot be converted:"
            f" {shown(_reasons(found.refused))}. Mend them in {OLD} first; the CRD stays as it is"
        )
    if found.users:
        raise CannotGoOn(
            f"our {OLD} lacks fields that NNCs use, and the API server would drop them:"
            f" {shown(_uses(found.users))}. The CRD stays as it is"
        )
    print(f"NNCs: {found.count} convert to {HUB} and back")
    if gone := sorted(lost(version_schema(crd, OLD), ours)):
        print(f"fields that only the present CRD has, used by no NNC, go: {shown(gone)}")


def findings(items: Collection[Object], schema: Schema) -> Findings:
    found = Findings(len(items))
    for each in items:
        key = f"{each['metadata'].get('namespace')}/{each['metadata']['name']}"
        if why := _refusal(each):
            found.refused[key] = why
        for path in sorted(set(pruned(each, schema))):
            found.users[path].append(key)
    return found


def _refusal(item: Object) -> str:
    """Why it cannot be converted up and down again; empty if it can."""
    old = {**item, "apiVersion": conversion.OLD, "kind": conversion.KIND}
    try:
        convert(convert(old, conversion.HUB), conversion.OLD)
    except conversion.ConversionError as problem:
        return str(problem)
    except Exception as problem:  # the webhook would fail on it as well
        return repr(problem)
    return ""


def _reasons(refused: Mapping[str, str]) -> list[str]:
    return [f"{key}: {why}" for key, why in sorted(refused.items())]


def _uses(users: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{path} ({len(keys)} NNCs, as {keys[0]})" for path, keys in sorted(users.items())]


def shown(texts: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return "; ".join(texts[:NAMED]) + more

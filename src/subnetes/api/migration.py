"""From v1alpha to v1beta1: what a NodeNetworkConfig CRD says about it, and what comes next. Pure.

    the webhook serves ── one CRD update (`target`) ── stored objects are rewritten ── v1alpha leaves
                                                       (`Rewriting`)                  status.storedVersions

`subnetes migrate` makes the update, DNC-RC does the rest (controllers/migration.py). Both versions and their
conversion come in one update: with two versions and strategy None, the API server only relabels an object and
prunes what the other version does not have.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from subnetes.api import nodenetworkconfig_v1alpha
from subnetes.api.crd import WebhookConversion, custom_resource_definition
from subnetes.api.model import to_builtins
from subnetes.api.nodenetworkconfig import NodeNetworkConfig

HUB = NodeNetworkConfig.resource.version
OLD = nodenetworkconfig_v1alpha.NodeNetworkConfig.resource.version
NAME = f"{NodeNetworkConfig.resource.plural}.{NodeNetworkConfig.resource.group}"
CONVERT_PATH = "/convert"
HTTPS = 443

Crd = Mapping[str, Any]


class Stage(Enum):
    ABSENT = "not installed"
    OLD_ONLY = f"{OLD} only"
    HUB_ONLY = f"{HUB} only"
    CONVERTED = f"{OLD} and {HUB}, converted by a webhook"
    RELABELLED = f"{OLD} and {HUB} without a conversion"
    UNKNOWN = "in no state that is known"


DANGER = (
    f"The API server relabels objects between {OLD} and {HUB} instead of converting them, and drops what the"
    " other version does not have. Have nobody write NodeNetworkConfigs now: stop DNC-RC and the agents."
    " Start the webhook, then run `subnetes migrate --repair`, which brings the conversion. What was dropped"
    " does not come back by that: agents write their requests anew, statuses come from a backup."
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What the CRD says, as far as the migration is concerned."""

    stage: Stage
    storage: str = ""
    stored: tuple[str, ...] = ()
    why: str = ""  # of what is not known, or dangerous

    def __str__(self) -> str:
        where = f", stored in {self.storage}" if self.storage else ""
        return f"{self.stage.value}{where}"


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Objects may be stored in another version than this one. It holds for one generation of one CRD."""

    uid: str
    generation: int
    to: str

    def __str__(self) -> str:
        return f"{self.uid}/{self.generation}/{self.to}"


def standing(crd: Crd | None) -> Standing:
    if crd is None:
        return Standing(Stage.ABSENT)
    versions = {each["name"]: each for each in crd["spec"]["versions"]}
    storage = next((name for name, each in versions.items() if each.get("storage")), "")
    stored = tuple((crd.get("status") or {}).get("storedVersions") or ())
    stage, why = _stage(crd, versions, storage, stored)
    return Standing(stage, storage, stored, why)


def _stage(crd: Crd, versions: Mapping[str, Any], storage: str, stored: tuple[str, ...]) -> tuple[Stage, str]:
    if why := _foreign(crd, versions):
        return Stage.UNKNOWN, why
    served = {name for name, each in versions.items() if each.get("served")}
    if OLD in served and storage == OLD and HUB not in versions:
        return Stage.OLD_ONLY, ""
    if strategy(crd) == "Webhook" and HUB in served and OLD in versions:
        return (Stage.CONVERTED, "") if OLD in served or storage == HUB else (Stage.UNKNOWN, _said(served))
    if strategy(crd) != "Webhook" and (served == {OLD, HUB} or (HUB in served and OLD in stored)):
        return Stage.RELABELLED, DANGER
    if served == {HUB} and storage == HUB:
        return Stage.HUB_ONLY, ""
    return Stage.UNKNOWN, _said(served)


def _foreign(crd: Crd, versions: Mapping[str, Any]) -> str:
    """Why this cannot be a CRD that we know how to bring on."""
    names, resource = crd["spec"].get("names") or {}, NodeNetworkConfig.resource
    if names.get("kind") != resource.kind or crd["spec"].get("scope") != "Namespaced":
        return f"it defines {crd['spec'].get('scope')} {names.get('kind')}, not Namespaced {resource.kind}"
    if others := sorted(set(versions) - {OLD, HUB}):
        return f"it has versions that nobody here can convert: {', '.join(others)}"
    if crd["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    return ""


def _said(served: set[str]) -> str:
    return f"it serves {', '.join(sorted(served)) or 'nothing'}, which no step of a migration leaves behind"


def strategy(crd: Crd) -> str:
    return str((crd["spec"].get("conversion") or {}).get("strategy") or "None")


def client_config(crd: Crd | None) -> dict[str, Any] | None:
    """How the API server finds the webhook; None: it asks none."""
    if crd is None or strategy(crd) != "Webhook":
        return None
    found: dict[str, Any] = crd["spec"]["conversion"]["webhook"]["clientConfig"]
    return found


def rewriting(crd: Crd | None) -> Rewriting | None:
    """What there is to rewrite. The storage version says where to, so a roll-back is done the same way."""
    now = standing(crd)
    if crd is None or now.stage is not Stage.CONVERTED or set(now.stored) <= {now.storage}:
        return None
    return Rewriting(crd["metadata"]["uid"], crd["metadata"].get("generation", 0), now.storage)


def target(crd: Crd | None, conversion: WebhookConversion) -> dict[str, Any]:
    """The CRD as it is to be: our spec, with whatever else the present one's metadata carries."""
    kinds = (NodeNetworkConfig, nodenetworkconfig_v1alpha.NodeNetworkConfig)
    wanted = to_builtins(custom_resource_definition(kinds, conversion))
    if isinstance(wanted["spec"]["conversion"]["webhook"]["clientConfig"].get("service"), dict):
        wanted["spec"]["conversion"]["webhook"]["clientConfig"]["service"].setdefault("port", HTTPS)
    if crd is None:
        return wanted
    return {**copy.deepcopy(dict(crd)), "spec": wanted["spec"]}


def rolled_back(crd: Crd) -> dict[str, Any]:
    """The same CRD with v1alpha as its storage: both versions stay served, and converted."""
    wanted = copy.deepcopy(dict(crd))
    for version in wanted["spec"]["versions"]:
        version["storage"] = version["name"] == OLD
        version["served"] = True
    return wanted


def differ(crd: Crd | None, wanted: Crd) -> bool:
    """Whether there is anything to write."""
    return crd is None or _spelled_out(crd["spec"]) != _spelled_out(wanted["spec"])


def _spelled_out(spec: Any) -> Any:
    """Without what says nothing: API servers leave out, or put in, empty values as they like."""
    if isinstance(spec, dict):
        said = {
            key: value for key, value in spec.items() if not (value is None or value is False or value == [])
        }
        return {key: _spelled_out(value) for key, value in said.items()}
    if isinstance(spec, list):
        return [_spelled_out(value) for value in spec]
    return spec

"""The core kinds that are served without a CRD, and how each departs from the common rules of writing.

Their schemas are not enforced: production has a real API server for that, and our own code writes them
through typed structs. `registry.py` serves them, `admission.py` obeys their rules.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from subnetes.api.resource import Resource
from subnetes.apiserver.metadata import LABEL, SUBDOMAIN, NameRule, Object, section
from subnetes.apiserver.resources import Column, Served

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
INITIAL_NAMESPACES = (*PROTECTED_NAMESPACES, "kube-node-lease")
NAMESPACE = Resource("", "v1", "Namespace", "namespaces", False)


def _as_it_is(_new: Object, _old: Object | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Rules:
    """What is particular about writing a kind; the defaults are a core kind's."""

    name: NameRule = SUBDOMAIN
    prepare: Callable[[Object, Object | None], None] = _as_it_is  # completes the new state, given the old
    generation: bool = False  # counted: one higher at each change beyond metadata and status
    needs_version: bool = False  # an update without a resourceVersion is refused
    status_apart: bool = False  # a creator cannot set status, and a write of /status changes nothing else
    mark: Callable[[Object], None] | None = None  # a container: what a deletion notes before it is emptied
    graceful: bool = False  # DELETE waits for somebody (kubelet) to confirm
    shape: Any = Any  # the types of what the server itself reads of an object, as msgspec checks them


CUSTOM = Rules(generation=True, needs_version=True, status_apart=True)


class _Sections(msgspec.Struct):
    spec: Object | None = None
    status: Object | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    termination_grace_period_seconds: int | None = None


class _PodShape(msgspec.Struct):
    spec: _PodSpec | None = None
    status: Object | None = None


class _SecretShape(msgspec.Struct, rename="camel"):
    data: dict[str, str | None] | None = None
    string_data: dict[str, str] | None = None


def _namespace(new: Object, old: Object | None) -> None:
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
    new["spec"] = old["spec"] if old else {"finalizers": ["kubernetes"]}
    if old is None:
        new["status"] = {"phase": "Active"}


def _mark_namespace(namespace: Object) -> None:
    namespace["status"] = section(namespace, "status") | {"phase": "Terminating"}


def _secret(new: Object, _old: Object | None) -> None:
    plain: dict[str, str] = new.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    if encoded:
        new["data"] = (new.get("data") or {}) | encoded
    new.setdefault("type", "Opaque")


_POD_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}


def _pod(new: Object, old: Object | None) -> None:
    new["spec"] = _POD_DEFAULTS | (new.get("spec") or {})
    if old is None:
        new["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


@dataclass(frozen=True, slots=True)
class Builtin:
    served: Served
    rules: Rules


def _builtin(
    resource: Resource,
    rules: Rules,
    columns: Mapping[str, str],  # name → path; a name in brackets is shown with -o wide
    fields: str = "",
    short: str = "",
    **more: Any,
) -> Builtin:
    shown = {**columns, "Age": ".metadata.creationTimestamp"}
    served = Served(
        resource=resource,
        singular=resource.kind.lower(),
        list_kind=f"{resource.kind}List",
        short_names=tuple(short.split()),
        storage_version=resource.version,
        selectable_fields=tuple(fields.split()),
        columns=tuple(_column(name, path) for name, path in shown.items()),
        **more,
    )
    return Builtin(served, rules)


def _column(name: str, path: str) -> Column:
    kind = "date" if path.endswith("Timestamp") else "string"
    return Column(name.strip("()"), kind, path, priority=int(name.startswith("(")))


def _core(kind: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", kind, f"{kind.lower()}s", namespaced)


_NODE_COLUMNS = {
    "Ready": '.status.conditions[?(@.type=="Ready")].status',
    "Version": ".status.nodeInfo.kubeletVersion",
}
_POD_COLUMNS = {"Status": ".status.phase", "(IP)": ".status.podIP", "(Node)": ".spec.nodeName"}
_POD_FIELDS = """spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork
    status.phase status.podIP status.nominatedNodeName"""
_EVENT_COLUMNS = {
    "Last Seen": ".lastTimestamp",
    "Type": ".type",
    "Reason": ".reason",
    "Object": ".involvedObject.name",
    "Message": ".message",
}
_EVENT_FIELDS = """involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid
    involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath
    reason reportingComponent source type"""
_NAMESPACE_RULES = Rules(LABEL, _namespace, mark=_mark_namespace, shape=_Sections)
_POD_RULES = Rules(prepare=_pod, generation=True, graceful=True, shape=_PodShape)
_SECRET_RULES = Rules(prepare=_secret, shape=_SecretShape)
_LEASE = Resource("coordination.k8s.io", "v1", "Lease", "leases")
_STATUS: Mapping[str, Any] = {"status_subresource": True}
_POD_MORE: Mapping[str, Any] = {"categories": ("all",), "filed_by": "spec.nodeName"}

BUILTINS = (
    _builtin(NAMESPACE, _NAMESPACE_RULES, {"Status": ".status.phase"}, "status.phase", "ns", **_STATUS),
    _builtin(_core("Node", namespaced=False), Rules(), _NODE_COLUMNS, "spec.unschedulable", "no", **_STATUS),
    _builtin(_core("Pod"), _POD_RULES, _POD_COLUMNS, _POD_FIELDS, "po", **_STATUS, **_POD_MORE),
    _builtin(_core("Secret"), _SECRET_RULES, {"Type": ".type"}, "type"),
    _builtin(_core("ConfigMap"), Rules(), {}, short="cm"),
    _builtin(_core("Event"), Rules(), _EVENT_COLUMNS, _EVENT_FIELDS, "ev"),
    _builtin(_core("ServiceAccount"), Rules(), {}, short="sa"),
    _builtin(_LEASE, Rules(needs_version=True), {"Holder": ".spec.holderIdentity"}),
)
FILED = {each.served.key: each.served.filed_by for each in BUILTINS if each.served.filed_by}
DEFINITIONS = Served(
    resource=Resource(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False
    ),
    singular="customresourcedefinition",
    list_kind="CustomResourceDefinitionList",
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status_subresource=True,
    storage_version="v1",
    columns=(Column("Created At", "string", ".metadata.creationTimestamp"),),
)

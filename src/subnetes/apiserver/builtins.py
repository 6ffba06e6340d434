"""The core kinds that are served without a CRD, and how each departs from the common rules of writing.

Their schemas are not enforced: production has a real API server for that, and our own code writes them
through typed structs. `registry.py` serves them, `admission.py` obeys their rules.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subnetes.api.resource import Resource
from subnetes.apiserver import names
from subnetes.apiserver.metadata import NameRule, Object
from subnetes.apiserver.resources import Column, Served

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public")
INITIAL_NAMESPACES = (*PROTECTED_NAMESPACES, "kube-node-lease")

Prepare = Callable[[Object, Object | None], None]


def _as_it_is(_new: Object, _old: Object | None) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Rules:
    """What is particular about writing a kind; the defaults are a core kind's."""

    name: NameRule = names.subdomain
    prepare: Prepare = _as_it_is  # completes what will be stored, given what was
    generation: bool = False  # counted: one higher at each change beyond metadata and status
    needs_version: bool = False  # an update without a resourceVersion is refused
    created_with_status: bool = False  # a creator may set status, though it is a subresource
    status_with_metadata: bool = True  # a write of /status may change labels, annotations and finalizers
    mark: Callable[[Object], None] | None = None  # a container: what a deletion notes before it is emptied
    answers_deleted: bool = False  # DELETE answers with the object rather than a Status
    graceful: bool = False  # DELETE waits for somebody (kubelet) to confirm
    deletes_collection: bool = True


CUSTOM = Rules(generation=True, needs_version=True, status_with_metadata=False)


def _namespace(new: Object, old: Object | None) -> None:
    new["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = new["metadata"]["name"]
    new["spec"] = old["spec"] if old else {"finalizers": ["kubernetes"]}
    if old is None:
        new["status"] = {"phase": "Active"}


def _mark_namespace(namespace: Object) -> None:
    namespace["status"] = {**namespace.get("status", {}), "phase": "Terminating"}


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
    short: str,
    rules: Rules,
    fields: str = "",
    columns: tuple[Column, ...] = (),
    **more: Any,
) -> Builtin:
    age = Column("Age", "date", ".metadata.creationTimestamp")
    served = Served(
        resource=resource,
        singular=resource.kind.lower(),
        list_kind=f"{resource.kind}List",
        short_names=tuple(short.split()),
        storage_version=resource.version,
        selectable_fields=tuple(fields.split()),
        columns=(*columns, age),
        **more,
    )
    return Builtin(served, rules)


def _core(kind: str, plural: str, *, namespaced: bool = True) -> Resource:
    return Resource("", "v1", kind, plural, namespaced)


_EVENT_FIELDS = """involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid
    involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath
    reason reportingComponent source type"""
_POD_FIELDS = """spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork
    status.phase status.podIP status.nominatedNodeName"""

BUILTINS = (
    _builtin(
        _core("Namespace", "namespaces", namespaced=False),
        "ns",
        Rules(names.label, _namespace, mark=_mark_namespace, answers_deleted=True, deletes_collection=False),
        "status.phase",
        (Column("Status", "string", ".status.phase"),),
        status_subresource=True,
    ),
    _builtin(
        _core("Node", "nodes", namespaced=False),
        "no",
        Rules(created_with_status=True),
        "spec.unschedulable",
        (
            Column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
            Column("Version", "string", ".status.nodeInfo.kubeletVersion"),
        ),
        status_subresource=True,
    ),
    _builtin(
        _core("Pod", "pods"),
        "po",
        Rules(prepare=_pod, generation=True, answers_deleted=True, graceful=True),
        _POD_FIELDS,
        (
            Column("Status", "string", ".status.phase"),
            Column("IP", "string", ".status.podIP", priority=1),
            Column("Node", "string", ".spec.nodeName", priority=1),
        ),
        status_subresource=True,
        categories=("all",),
    ),
    _builtin(
        _core("Secret", "secrets"), "", Rules(prepare=_secret), "type", (Column("Type", "string", ".type"),)
    ),
    _builtin(_core("ConfigMap", "configmaps"), "cm", Rules()),
    _builtin(
        _core("Event", "events"),
        "ev",
        Rules(),
        _EVENT_FIELDS,
        (
            Column("Last Seen", "date", ".lastTimestamp"),
            Column("Type", "string", ".type"),
            Column("Reason", "string", ".reason"),
            Column("Object", "string", ".involvedObject.name"),
            Column("Message", "string", ".message"),
        ),
    ),
    _builtin(_core("ServiceAccount", "serviceaccounts"), "sa", Rules(answers_deleted=True)),
    _builtin(
        Resource("coordination.k8s.io", "v1", "Lease", "leases"),
        "",
        Rules(needs_version=True),
        "",
        (Column("Holder", "string", ".spec.holderIdentity"),),
    ),
)
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

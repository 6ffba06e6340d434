"""NodeController: every Node has an NNC, which asks for nothing until the node's agent does.

The NNC is owned by its Node, as agents of any age demand, and has a finalizer from its first moment, so that
no IP is forgotten however the Node goes. What becomes of it then is departure.py's.
"""

from collections.abc import Mapping

from subnetes.api import names
from subnetes.api.core import Node
from subnetes.api.meta import ObjectMeta, OwnerReference
from subnetes.api.nodenetworkconfig import NodeNetworkConfig, NodeNetworkConfigSpec
from subnetes.controllers import scalers
from subnetes.controllers.placement import maximum_of
from subnetes.controllers.term import Api, Stores, Term
from subnetes.kube.errors import AlreadyExists
from subnetes.kube.key import Key


class NodeReconciler:
    def __init__(self, term: Term, api: Api, stores: Stores) -> None:
        self._term = term
        self._api = api
        self._stores = stores

    async def reconcile(self, key: Key) -> None:
        node = self._stores.node(key.name)
        if node is None or node.metadata.deletion_timestamp is not None:
            return
        if self._stores.nncs.get(self._term.nnc_key(key.name)) is not None:
            return
        self._term.must_lead()
        try:
            await self._api.create(self._nnc(node))
        except AlreadyExists:
            return  # not in our store yet, or still on its way out: its next event brings us back

    def _nnc(self, node: Node) -> NodeNetworkConfig:
        metadata = ObjectMeta(
            name=node.metadata.name,
            namespace=self._term.namespace,
            annotations={names.GRANTER: self._term.identity, **scaler_annotations(self._stores, node)},
            finalizers=[names.RELEASE_FINALIZER],
            owner_references=[owner(node)],
        )
        return NodeNetworkConfig(metadata=metadata, spec=NodeNetworkConfigSpec())


def owner(node: Node) -> OwnerReference:
    return OwnerReference(
        api_version="v1",
        kind="Node",
        name=node.metadata.name,
        uid=node.metadata.uid or "",
        controller=True,
    )


def scaler_annotations(
    stores: Stores, node: Node, present: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The scaling values of the first subnet that the node draws from, once they are known.

    How many IPs it may have is the node's own; what an older control plane said of that is written down
    before these values take its place.
    """
    drawn = stores.drawn_from(node)
    status = drawn[0].status if drawn else None
    if status is None or status.scaler is None:
        return {}
    imported = scalers.imported_maximum(present)
    values = {names.SCALER: scalers.annotation(status.scaler, maximum_of(node, imported))}
    return values if imported is None else values | {names.IMPORTED_MAX: str(imported)}

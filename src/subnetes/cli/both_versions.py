"""NodeNetworkConfigs in v1alpha too, for `subnetes up`: the conversion webhook, in its process, on loopback.

As everywhere, the webhook serves before the one update of the CRD that names it.
"""

from subnetes.api import migration
from subnetes.api.core import Secret
from subnetes.api.crd import WebhookConversion
from subnetes.api.customresourcedefinition import CustomResourceDefinition
from subnetes.api.names import NAMESPACE
from subnetes.kube.client import Client
from subnetes.kube.errors import Conflict
from subnetes.kube.metrics import Metrics
from subnetes.kube.services import Service
from subnetes.webhook.authority import SECRET, Authority
from subnetes.webhook.authority import Settings as AuthoritySettings
from subnetes.webhook.certificates import BUNDLE
from subnetes.webhook.metrics import WebhookMetrics
from subnetes.webhook.server import PATH, Server, Settings
from subnetes.webhook.tls import Shown

HOST = "127.0.0.1"
_CRDS = CustomResourceDefinition.resource


class BothVersions:
    """`services` are run by the caller; `ready` returns when the API server knows the webhook."""

    def __init__(self, client: Client) -> None:
        self._client = client
        metrics = Metrics()
        measured = WebhookMetrics(metrics.registry)
        shown = Shown(measured)
        authority = Authority(client, shown, AuthoritySettings([HOST]), metrics)
        self._door = Server(Settings(HOST, 0, drain=0.0), shown.context, shown.certified, measured)
        self.services: list[Service] = [*authority.informers, authority, self._door]

    async def ready(self) -> None:
        url = await self._door.url + PATH
        while True:
            bundle = ((await self._client.get(Secret, SECRET, NAMESPACE)).data or {})[BUNDLE]
            crd = await self._client.get(_CRDS, migration.NAME)
            wanted = migration.target(crd, WebhookConversion(url, bundle))
            try:
                if migration.differ(crd, wanted):
                    await self._client.update(wanted, resource=_CRDS)
            except Conflict:
                continue
            return

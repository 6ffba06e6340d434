"""Who is looked at when IPs come free: those who wait for them, in DNC's order, as many as can be served."""

import contextlib

from subnetes.api.nodenetworkconfig import NodeNetworkConfig
from subnetes.controllers.status import containers_of
from subnetes.controllers.term import Term, Wakes
from subnetes.dnc.allocator import Allocator
from subnetes.dnc.errors import SubnetUnknown
from subnetes.dnc.types import NC, SubnetKey


class Waiters:
    """Also frees what is on its way out: not before etcd shows it no longer, or it would have two owners."""

    def __init__(self, term: Term, allocator: Allocator, wakes: Wakes) -> None:
        self._term = term
        self._allocator = allocator
        self._wakes = wakes

    async def let_go(self, nc: NC, shown: NodeNetworkConfig) -> None:
        """Have DNC free what left the NC, as far as the NNC, as just read or written, does not show it."""
        if shown.status is None:
            return  # what the node had may be stashed still, and be shown again
        still = {ip.id for each in containers_of(shown) for ip in each.secondary_ips or ()}
        gone = [ip.id for ip in nc.leaving if ip.id not in still]
        if gone:
            self._term.must_lead()
            await self.changed(nc.subnet, await self._allocator.confirm(self._term.cluster, nc.id, gone))

    async def answered(self, before: NC, after: NC) -> None:
        """A node was answered; if it asked for less than it waited for, what was kept back is others'."""
        given_up = before.waiting - after.waiting - len(set(after.secondary) - set(before.secondary))
        if after.version != before.version or given_up > 0:
            await self.changed(before.subnet, given_up)

    async def gives_up(self, node: str, key: SubnetKey) -> None:
        """The node wants no primary there any more: whoever waits behind it gets what there is."""
        self._term.must_lead()
        await self._allocator.release_wait(self._term.cluster, node, key)
        with contextlib.suppress(SubnetUnknown):
            await self.changed(key, (await self._allocator.utilization(key)).free)

    async def changed(self, key: SubnetKey, freed: int = 0) -> None:
        """Addresses were given, or came free. Waiters of other clusters ask again by themselves."""
        self._wakes.subnet(key.name)
        if freed <= 0:
            return
        left = freed
        for waiter in await self._allocator.waiting(key):
            if waiter.cluster == self._term.cluster:
                self._wakes.node(waiter.node)
            left -= waiter.wants
            if left <= 0:
                return

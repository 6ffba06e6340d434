"""What an agent hears of its subnets."""

import asyncio
from pathlib import Path

from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.cns.subnets import SubnetWatch
from subnetes.kube.metrics import Metrics
from tests.cns.world import SUBNET, api, make_subnet, set_subnet
from tests.harness.clients import eventually


async def test_counts_alone_are_no_news(tmp_path: Path) -> None:
    """Every agent of a cluster watches the subnet: what does not rule it must cost it nothing."""
    told: list[bool | None] = []

    def tell(name: str, subnet: ClusterSubnet | None) -> None:
        told.append(subnet.status.exhausted if subnet and subnet.status else None)

    async with api(tmp_path) as client:
        await make_subnet(client, scaler={"batch": 16, "buffer": 0.5}, exhausted=False)
        watch = SubnetWatch(client, tell, Metrics())
        running = asyncio.create_task(watch.run())
        watch.want([SUBNET])
        await eventually(lambda: told[-1:] == [False])
        before = len(told)
        for reserved in (17, 33):
            await set_subnet(client, reserved=reserved)
        await set_subnet(client, exhausted=True)
        await eventually(lambda: told[-1] is True)
        assert told[before:] == [True]
        watch.stop()
        await running

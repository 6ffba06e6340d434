"""One of several processes that take and give back IPs of one subnet as fast as they can.

    python -m tests.dnc.writer DATABASE FOLDER NAME ROUNDS

Each address that it was given it claims in a folder that all writers share: a file that must not exist yet.
It removes the file between the two steps of giving the address back. So an address that DNC hands out twice
ends a writer, whatever DNC's own tables say. It may be killed at any moment and started again under
the same name.
"""

import asyncio
import random
import sys
from pathlib import Path

from subnetes.cli.dnc import open_database
from subnetes.dnc.errors import SubnetFull
from subnetes.dnc.sql_allocator import SqlAllocator
from subnetes.dnc.types import NC, Fence, SubnetKey

SUBNET = SubnetKey("", "shared", 4)
CLUSTER = "c"


class Writer:
    def __init__(self, dnc: SqlAllocator, folder: Path, name: str) -> None:
        self.dnc = dnc
        self.folder = folder
        self.name = name
        self.dice = random.Random(name)
        self.flag = folder.parent / f"flag-{name}"
        self.flag.write_text(name)

    async def run(self, rounds: int) -> None:
        nc = await self.primary()
        self.claim(nc)
        await self.confirm(nc)  # where an earlier life ended
        for _ in range(rounds):
            await self.confirm(nc := await self.round(nc))

    async def primary(self) -> NC:
        while True:
            try:
                return await self.dnc.ensure_nc(CLUSTER, self.name, SUBNET)
            except SubnetFull:
                await asyncio.sleep(self.dice.random() / 50)

    async def round(self, nc: NC) -> NC:
        going = [ip for ip in nc.secondary if self.dice.random() < 0.4]
        target = self.dice.randrange(12)
        fence = Fence("u", 0)
        ids = [ip.id for ip in going]
        now = (await self.dnc.set_secondary(CLUSTER, nc.id, fence, target, ids)).nc
        self.claim(now)
        return now

    async def confirm(self, nc: NC) -> None:
        for ip in nc.leaving:
            (self.folder / ip.address).unlink(missing_ok=True)
        await self.dnc.confirm(CLUSTER, nc.id, [ip.id for ip in nc.leaving])

    def claim(self, nc: NC) -> None:
        for address in (nc.primary, *(ip.address for ip in nc.secondary)):
            path = self.folder / address
            try:
                path.hardlink_to(self.flag)  # at once there and with its content
            except FileExistsError:
                owner = path.read_text()
                if owner != self.name:
                    raise AssertionError(f"{address} was handed to {self.name} and to {owner}") from None


async def main(database: str, folder: str, name: str, rounds: str) -> None:
    dnc = SqlAllocator(await open_database(database))
    try:
        await Writer(dnc, Path(folder), name).run(int(rounds))
    finally:
        await dnc.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

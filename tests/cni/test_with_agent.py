"""Executable, socket, verbs, pool and journal together."""

import asyncio
from pathlib import Path

import pytest

from subnetes.cns import endpoint
from tests.cni import pools
from tests.cni.execution import Plugin
from tests.cni.requests import config, environment

pytestmark = pytest.mark.slow


async def test_a_pod_comes_is_checked_and_goes(plugin: Plugin, tmp_path: Path) -> None:
    ipam = pools.ipam(tmp_path, 2)
    text = config(ipam={"socket": str(tmp_path / "cns.sock")})
    async with endpoint.serve(ipam, tmp_path / "cns.sock"):
        assert (await plugin.start(environment("STATUS"), text)).code == 0
        added = await plugin.start(environment("ADD"), text)
        assert (added.code, added.document["ips"][0]["address"]) == (0, "10.0.0.16/16")
        assert (await plugin.start(environment("ADD"), text)).text == added.text
        checked = await plugin.start(environment("CHECK"), text | {"prevResult": added.document})
        assert (checked.code, checked.text) == (0, b"")
        collected = await plugin.start(environment("GC"), text | {"cni.dev/valid-attachments": []})
        assert (collected.code, collected.text) == (0, b"")
        assert not ipam.pool.keys
        assert (await plugin.start(environment("DEL"), text)).code == 0
    ipam.close()


async def test_an_error_of_the_agent_is_the_plugins(plugin: Plugin, tmp_path: Path) -> None:
    ipam = pools.ipam(tmp_path, 0)
    text = config(ipam={"socket": str(tmp_path / "cns.sock")})
    async with endpoint.serve(ipam, tmp_path / "cns.sock"):
        full = await plugin.start(environment("ADD"), text)
        assert (full.code, full.document["code"]) == (1, 11)
        assert pools.SUBNET in full.document["msg"]
        nameless = await plugin.start(environment("ADD"), text | {"name": ""})
        assert (nameless.code, nameless.document["code"]) == (1, 7)
        old = await plugin.start(environment("ADD"), text | {"cniVersion": "0.1.0"})
        assert (old.code, old.document["code"]) == (1, 1)
    ipam.close()


async def test_a_del_while_the_agent_is_away_is_done_when_it_is_back(plugin: Plugin, tmp_path: Path) -> None:
    """FIELD row 6, from end to end."""
    ipam = pools.ipam(tmp_path, 2)
    text = config(ipam={"socket": str(tmp_path / "cns.sock")})
    async with endpoint.serve(ipam, tmp_path / "cns.sock"):
        await plugin.start(environment("ADD"), text)
    assert (await plugin.start(environment("DEL"), text)).code == 0
    assert ipam.pool.keys == {("c1", "eth0")}
    async with endpoint.serve(ipam, tmp_path / "cns.sock"):
        assert not ipam.pool.keys
    ipam.close()


async def test_forty_at_once_get_forty_addresses(native: Plugin, tmp_path: Path) -> None:
    ipam = pools.ipam(tmp_path, 40)
    text = config(ipam={"socket": str(tmp_path / "cns.sock")})
    async with endpoint.serve(ipam, tmp_path / "cns.sock"):
        calls = (native.start(environment("ADD", f"c{n}"), text) for n in range(40))
        done = await asyncio.gather(*calls)
    assert len({each.document["ips"][0]["address"] for each in done}) == 40
    ipam.close()

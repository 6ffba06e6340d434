"""The CNI verbs over a real pool: results in each version's shape, errors in CNI's terms, nothing lost."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subnetes.cns.errors import JournalError
from subnetes.cns.invocation import variables
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal
from subnetes.cns.verbs import Verbs
from subnetes.ipam.pool import State
from tests.cni import pools
from tests.cni.requests import config, environment, parsed, request


@pytest.fixture
def ipam(tmp_path: Path) -> Iterator[Ipam]:
    made = pools.ipam(tmp_path, 4, v6=True)
    yield made
    made.close()


async def call(ipam: Ipam, command: str, text: dict[str, Any] | bytes, **variables: str) -> tuple[int, Any]:
    container_id, ifname = variables.pop("container_id", "c1"), variables.pop("ifname", "eth0")
    sent = request(environment(command, container_id, ifname, **variables), text)
    return parsed(await Verbs(ipam).answer(sent))


async def added(ipam: Ipam, container_id: str = "c1", **more: str) -> dict[str, Any]:
    code, result = await call(ipam, "ADD", config(), container_id=container_id, **more)
    assert code == 0, result
    assert isinstance(result, dict)
    return result


def addresses(result: dict[str, Any]) -> list[str]:
    return [each["address"] for each in result["ips"]]


def assigned(ipam: Ipam) -> int:
    return sum(ip.state is State.ASSIGNED for ip in ipam.pool)


class TestAdd:
    @pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    async def test_the_result_has_the_shape_of_its_version(self, ipam: Ipam, version: str) -> None:
        code, result = await call(ipam, "ADD", config(cniVersion=version))
        said_family = version.startswith("0.")
        v4 = {"address": "10.0.0.16/16", "gateway": "10.0.0.1"} | ({"version": "4"} if said_family else {})
        v6 = {"address": "fd00::10/64", "gateway": "fd00::1"} | ({"version": "6"} if said_family else {})
        assert (code, result) == (
            0,
            {
                "cniVersion": version,
                "ips": [v4, v6],
                "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "::/0", "gw": "fd00::1"}],
                "dns": {},
            },
        )

    async def test_repeated_it_gives_the_same(self, ipam: Ipam) -> None:
        assert await added(ipam) == await added(ipam)
        assert assigned(ipam) == 2

    async def test_another_interface_of_the_container_gets_its_own(self, ipam: Ipam) -> None:
        first, second = await added(ipam), await added(ipam, ifname="net1")
        assert not set(addresses(first)) & set(addresses(second))

    async def test_who_holds_it_is_recorded(self, ipam: Ipam) -> None:
        await added(ipam)
        holder = ipam.pool.by_key(("c1", "eth0"))[0].holder
        assert holder is not None
        said = (holder.network, holder.pod_namespace, holder.pod_name, holder.pod_uid, holder.netns)
        assert said == ("podnet", "web", "pod-1", "uid-1", "/var/run/netns/cni-1")

    async def test_configured_routes_stand_instead_of_the_default_one(self, ipam: Ipam) -> None:
        routes = [{"dst": "10.9.0.0/16"}, {"dst": "192.168.0.0/16", "gw": "10.0.0.9"}]
        _, result = await call(ipam, "ADD", config(ipam={"routes": routes}))
        assert result["routes"] == routes

    async def test_a_subnet_that_the_node_has_no_part_in_is_named_in_the_error(self, ipam: Ipam) -> None:
        code, error = await call(ipam, "ADD", config(ipam={"subnetName": "storage"}))
        assert (code, error["code"]) == (1, 11)
        assert "storage" in error["msg"]

    async def test_an_empty_pool_is_try_again_later_and_names_the_subnet(self, ipam: Ipam) -> None:
        for number in range(4):
            await added(ipam, f"c{number}")
        code, error = await call(ipam, "ADD", config(cniVersion="0.4.0"), container_id="c9")
        assert (code, error["code"], error["cniVersion"]) == (1, 11, "0.4.0")
        assert pools.SUBNET in error["msg"]

    async def test_it_waits_for_an_ip_and_gets_it(self, tmp_path: Path) -> None:
        ipam = pools.ipam(tmp_path, 1, wait=30)
        await added(ipam)
        waiting = asyncio.create_task(added(ipam, "c2"))
        await asyncio.sleep(0)
        assert not waiting.done()
        ipam.reconcile(pools.granted(2, version=2))
        assert addresses(await waiting) == ["10.0.0.17/16"]
        ipam.close()

    async def test_before_the_agent_has_synced_it_is_try_again_later(self, tmp_path: Path) -> None:
        ipam = Ipam(Journal(tmp_path / "journal", "boot"), wait=0)
        code, error = await call(ipam, "ADD", config())
        assert (code, error["code"]) == (1, 11)
        ipam.close()


class TestDel:
    async def test_it_releases_what_the_attachment_holds(self, ipam: Ipam) -> None:
        await added(ipam)
        assert await call(ipam, "DEL", config()) == (0, None)
        assert assigned(ipam) == 0

    async def test_of_the_unknown_it_succeeds(self, ipam: Ipam) -> None:
        assert await call(ipam, "DEL", config(), container_id="never-seen") == (0, None)

    async def test_it_needs_no_network_namespace(self, ipam: Ipam) -> None:
        """FIELD row 15: after a reboot there is none."""
        await added(ipam)
        assert await call(ipam, "DEL", config(), CNI_NETNS="") == (0, None)
        assert assigned(ipam) == 0

    async def test_late_it_does_not_touch_the_ip_of_a_new_sandbox(self, ipam: Ipam) -> None:
        """FIELD rows 1 and 3: the same pod, the same address even, another container id."""
        for number in range(4):
            await added(ipam, f"old-{number}")
        for number in range(4):
            await call(ipam, "DEL", config(), container_id=f"old-{number}")
        new = await added(ipam, "new")
        for number in range(4):
            assert await call(ipam, "DEL", config(), container_id=f"old-{number}") == (0, None)
        assert await added(ipam, "new") == new
        assert assigned(ipam) == 2

    async def test_it_ends_the_wait_of_its_own_add(self, tmp_path: Path) -> None:
        ipam = pools.ipam(tmp_path, 0, wait=60)
        waiting = asyncio.create_task(call(ipam, "ADD", config()))
        await asyncio.sleep(0)
        assert await call(ipam, "DEL", config()) == (0, None)
        code, error = await waiting
        assert (code, error["code"]) == (1, 11)
        ipam.reconcile(pools.granted(2, version=2))
        assert assigned(ipam) == 0
        ipam.close()

    async def test_one_that_cannot_be_journaled_fails_and_changes_nothing(
        self, ipam: Ipam, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await added(ipam)

        def full(*_: object) -> None:
            raise JournalError("no space left on the device")

        monkeypatch.setattr(Journal, "append", full)
        code, error = await call(ipam, "DEL", config())
        assert (code, error["code"]) == (1, 5)
        assert assigned(ipam) == 2


class TestCheck:
    async def test_what_is_as_it_was_added_is_fine(self, ipam: Ipam) -> None:
        result = await added(ipam)
        assert await call(ipam, "CHECK", config(prevResult=result)) == (0, None)

    async def test_other_addresses_are_an_error(self, ipam: Ipam) -> None:
        await added(ipam)
        other = {"ips": [{"address": "10.0.0.99/16"}]}
        code, error = await call(ipam, "CHECK", config(prevResult=other))
        assert (code, error["code"]) == (1, 100)

    async def test_an_unknown_attachment_is_an_error(self, ipam: Ipam) -> None:
        code, error = await call(ipam, "CHECK", config(prevResult={"ips": []}))
        assert (code, error["code"]) == (1, 100)

    async def test_it_needs_the_previous_result(self, ipam: Ipam) -> None:
        code, error = await call(ipam, "CHECK", config())
        assert (code, error["code"]) == (1, 7)


class TestGc:
    async def test_what_is_not_listed_is_released(self, ipam: Ipam) -> None:
        for name in ("c1", "c2", "c3"):
            await added(ipam, name)
        valid = [{"containerID": "c2", "ifname": "eth0"}]
        assert await call(ipam, "GC", config(**{"cni.dev/valid-attachments": valid})) == (0, None)
        assert ipam.pool.keys == {("c2", "eth0")}

    async def test_another_network_is_left_alone(self, ipam: Ipam) -> None:
        await added(ipam)
        gone: dict[str, Any] = {"cni.dev/valid-attachments": []}
        assert await call(ipam, "GC", config(name="other", **gone)) == (0, None)
        assert assigned(ipam) == 2

    async def test_a_list_that_is_missing_is_not_an_empty_one(self, ipam: Ipam) -> None:
        await added(ipam)
        code, error = await call(ipam, "GC", config())
        assert (code, error["code"]) == (1, 7)
        assert assigned(ipam) == 2

    async def test_an_entry_that_cannot_be_read_releases_nothing(self, ipam: Ipam) -> None:
        await added(ipam)
        code, error = await call(ipam, "GC", config(**{"cni.dev/valid-attachments": [{"ifname": "eth0"}]}))
        assert (code, error["code"]) == (1, 7)
        assert assigned(ipam) == 2


class TestStatus:
    async def test_an_empty_pool_does_not_fail_it(self, tmp_path: Path) -> None:
        ipam = pools.ipam(tmp_path, 0)
        assert await call(ipam, "STATUS", config(), CNI_CONTAINERID="", CNI_IFNAME="") == (0, None)
        ipam.close()

    async def test_without_a_network_container_it_fails_with_50(self, tmp_path: Path) -> None:
        ipam = Ipam(Journal(tmp_path / "journal", "boot"), wait=0)
        code, error = await call(ipam, "STATUS", config())
        assert (code, error["code"]) == (1, 50)
        ipam.close()


class TestVersion:
    async def test_all_supported_versions_are_listed(self, ipam: Ipam) -> None:
        code, said = await call(ipam, "VERSION", {"cniVersion": "0.4.0"})
        supported = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"]
        assert (code, said) == (0, {"cniVersion": "0.4.0", "supportedVersions": supported})


BAD: list[tuple[str, dict[str, Any] | bytes, dict[str, str], int, str]] = [
    ("ADD", config(name=None), {}, 7, "no name"),
    ("ADD", config(name="a/b"), {}, 7, "a/b"),
    ("ADD", config(name=7), {}, 7, "name"),
    ("ADD", config(cniVersion="0.2.0"), {}, 1, "0.2.0"),
    ("ADD", config(cniVersion="9.9.9"), {}, 1, "9.9.9"),
    ("ADD", config(cniVersion=None), {}, 1, "cniVersion"),
    ("ADD", config(ipam=[]), {}, 7, "ipam"),
    ("ADD", b"{", {}, 6, "JSON"),
    ("ADD", b"", {}, 6, "JSON"),
    ("ADD", b"\xff\xfe", {}, 6, "JSON"),
    ("ADD", b'{"x":' + b"[" * 100_000, {}, 6, "JSON"),
    ("ADD", config(), {"CNI_NETNS": ""}, 4, "CNI_NETNS"),
    ("ADD", config(), {"CNI_CONTAINERID": ""}, 4, "CNI_CONTAINERID"),
    ("ADD", config(), {"container_id": "../etc"}, 4, "CNI_CONTAINERID"),
    ("ADD", config(), {"container_id": "-c1"}, 4, "CNI_CONTAINERID"),
    ("ADD", config(), {"container_id": "c1\n"}, 4, "CNI_CONTAINERID"),
    ("ADD", config(), {"container_id": "c" * 300}, 4, "CNI_CONTAINERID"),
    ("ADD", config(), {"ifname": "a-name-of-16-chr"}, 4, "CNI_IFNAME"),
    ("ADD", config(), {"ifname": ".."}, 4, "CNI_IFNAME"),
    ("ADD", config(), {"ifname": "a/b"}, 4, "CNI_IFNAME"),
    ("ADD", config(), {"ifname": "a:b"}, 4, "CNI_IFNAME"),
    ("ADD", config(), {"ifname": "a\u2003b"}, 4, "CNI_IFNAME"),
    ("DEL", config(), {"CNI_IFNAME": ""}, 4, "CNI_IFNAME"),
    ("CHECK", config(cniVersion="0.3.1"), {}, 1, "CHECK"),
    ("GC", config(cniVersion="1.0.0"), {}, 1, "GC"),
    ("STATUS", config(cniVersion="1.0.0"), {}, 1, "STATUS"),
    ("UPDATE", config(), {}, 4, "CNI_COMMAND"),
]


def _nested(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["cniVersion", "name", "ipam", "prevResult", "cni.dev/valid-attachments", "x"])
    return st.lists(values, max_size=3) | st.dictionaries(names, values, max_size=4)


DOCUMENTS = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), _nested, max_leaves=8)


class TestBadInput:
    @pytest.mark.parametrize(("command", "text", "variables", "code", "says"), BAD)
    async def test_each_is_a_clear_error_and_changes_nothing(
        self,
        ipam: Ipam,
        command: str,
        text: dict[str, Any] | bytes,
        variables: dict[str, str],
        code: int,
        says: str,
    ) -> None:
        await added(ipam, "there-before")
        before = ipam.pool
        exit_code, error = await call(ipam, command, text, **variables)
        assert (exit_code, error["code"]) == (1, code)
        assert says in error["msg"]
        assert ipam.pool == before

    @given(st.binary(max_size=200))
    @settings(max_examples=200, deadline=None)
    def test_any_bytes_get_an_answer_in_cnis_terms(self, garbage: bytes) -> None:
        exit_code, error = parsed(asyncio.run(Verbs(NoPool()).answer(garbage)))
        assert exit_code == 1
        assert error.keys() == {"cniVersion", "code", "msg", "details"}

    @given(st.text(alphabet="AB=\0\n", max_size=30))
    @settings(max_examples=200, deadline=None)
    def test_variables_are_parted_at_the_first_equals_sign_and_the_first_of_a_name_counts(
        self, block: str
    ) -> None:
        plain: dict[str, str] = {}
        for pair in block.split("\0"):
            name, _, value = pair.partition("=")
            plain.setdefault(name, value)
        sent = block.encode() + b"\0"
        assert variables(len(sent).to_bytes(4, "big") + sent + b"{}") == (plain, b"{}")

    @given(DOCUMENTS)
    @settings(max_examples=200, deadline=None)
    def test_any_config_gets_an_answer_in_cnis_terms(self, document: Any) -> None:
        sent = request(environment("GC"), json.dumps(document).encode())
        exit_code, error = parsed(asyncio.run(Verbs(NoPool()).answer(sent)))
        assert (exit_code, error["code"] in {1, 6, 7}) == (1, True)

    async def test_a_fault_of_ours_is_answered_too(self, caplog: pytest.LogCaptureFixture) -> None:
        sent = request(environment("DEL"), config())
        exit_code, error = parsed(await Verbs(NoPool()).answer(sent))
        assert (exit_code, error["code"]) == (1, 999)
        assert "DEL of c1 failed" in caplog.text


class NoPool:
    """Whatever reaches the pool is a fault."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the pool was asked for {name}")

"""Azure CNS's contract, as azure-ipam speaks it (FIELD.md has the words), and the agent's own page."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from subnetes.cns import azure, listener, web
from subnetes.cns.ipam import Ipam
from subnetes.cns.journal import Journal
from subnetes.cns.metrics import Figures, Metrics, PoolCollector
from tests.cni import pools

ANY = "127.0.0.1:0"


@pytest.fixture
def ipam(tmp_path: Path) -> Iterator[Ipam]:
    made = pools.ipam(tmp_path, 4)
    yield made
    made.close()


@dataclass
class Caller:
    session: aiohttp.ClientSession
    base: str
    metrics: Metrics

    async def post(self, path: str, body: Any) -> tuple[dict[str, Any], str]:
        data = body if isinstance(body, bytes) else None
        async with self.session.post(self.base + path, json=None if data else body, data=data) as answer:
            assert answer.status == 200
            return await answer.json(), answer.headers["cns_return_code"]

    async def get(self, path: str) -> dict[str, Any]:
        async with self.session.get(self.base + path) as answer:
            found: dict[str, Any] = await answer.json()
            return found


@pytest.fixture
async def caller(ipam: Ipam) -> AsyncIterator[Caller]:
    metrics = Metrics()
    async with azure.serve(ipam, ANY, metrics) as port, aiohttp.ClientSession() as session:
        yield Caller(session, f"http://127.0.0.1:{port}", metrics)


def plural(container_id: str = "c1", **changes: Any) -> dict[str, Any]:
    return {
        "desiredIPAddresses": None,
        "podInterfaceID": container_id,
        "infraContainerID": container_id,
        "orchestratorContext": {"podName": "pod-1", "podNamespace": "web"},
        "ifname": "eth0",
        "secondaryInterfacesExist": False,
        "BackendInterfaceExist": False,
        "BacknendInterfaceMacAddress": "",
    } | changes


def singular(container_id: str = "c1") -> dict[str, Any]:
    return {
        "DesiredIPAddress": "",
        "PodInterfaceID": container_id,
        "InfraContainerID": container_id,
        "OrchestratorContext": {"podName": "pod-1", "podNamespace": "web"},
        "Ifname": "eth0",
    }


async def test_a_pod_comes_and_goes(caller: Caller, ipam: Ipam) -> None:
    answer, code = await caller.post("/network/requestipconfigs", plural())
    assert (answer["response"], code) == ({"ReturnCode": 0, "Message": ""}, "0")
    (info,) = answer["podIPInfo"]
    assert info["PodIPConfig"] == {"IPAddress": "10.0.0.16", "PrefixLength": 16}
    primary = info["NetworkContainerPrimaryIPConfig"]
    assert primary["IPSubnet"] == {"IPAddress": "10.0.0.4", "PrefixLength": 16}
    assert primary["GatewayIPAddress"] == "10.0.0.1"
    assert (info["NetworkContainerID"], info["NICType"]) == ("nc-1", "InfraNIC")
    again, _ = await caller.post("/network/requestipconfigs", plural())
    assert again == answer
    assert await caller.post("/network/releaseipconfigs", plural()) == ({"ReturnCode": 0, "Message": ""}, "0")
    assert not ipam.pool.keys


async def test_the_legacy_routes_do_the_same_for_one_network_container(caller: Caller, ipam: Ipam) -> None:
    answer, _ = await caller.post("/network/requestipconfig", singular())
    assert answer["PodIpInfo"]["PodIPConfig"]["IPAddress"] == "10.0.0.16"
    assert answer["Response"]["ReturnCode"] == 0
    assert (await caller.post("/network/releaseipconfig", singular()))[1] == "0"
    assert not ipam.pool.keys


async def test_the_legacy_route_refuses_where_a_pod_gets_two(tmp_path: Path) -> None:
    ipam = pools.ipam(tmp_path, 2, v6=True)
    async with azure.serve(ipam, ANY) as port, aiohttp.ClientSession() as session:
        caller = Caller(session, f"http://127.0.0.1:{port}", Metrics())
        answer, code = await caller.post("/network/requestipconfig", singular())
        assert (answer["Response"]["ReturnCode"], code) == (23, "23")
        both, _ = await caller.post("/network/requestipconfigs", plural("c2"))
        assert [each["PodIPConfig"]["IPAddress"] for each in both["podIPInfo"]] == ["10.0.0.16", "fd00::10"]
    assert ipam.pool.keys == {("c2", "eth0")}
    ipam.close()


async def test_release_is_by_container_id_and_never_by_the_pods_name(caller: Caller, ipam: Ipam) -> None:
    """FIELD row 3."""
    await caller.post("/network/requestipconfigs", plural("new"))
    answer, _ = await caller.post("/network/releaseipconfigs", plural("old"))
    assert answer["ReturnCode"] == 0
    assert ipam.pool.keys == {("new", "eth0")}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 23),
        (b"[]", 23),
        (plural(podInterfaceID="", infraContainerID=""), 2),
        (plural(orchestratorContext=None), 33),
        (plural(orchestratorContext="pod-1"), 34),
        (plural(desiredIPAddresses=["10.0.0.17"]), 15),
    ],
)
async def test_an_error_is_a_code_of_the_contract_and_changes_nothing(
    caller: Caller, ipam: Ipam, body: Any, code: int
) -> None:
    answer, header = await caller.post("/network/requestipconfigs", body)
    assert (answer["response"]["ReturnCode"], header, answer["podIPInfo"]) == (code, str(code), [])
    assert answer["response"]["Message"]
    assert not ipam.pool.keys


async def test_a_desired_ip_that_is_another_does_not_cost_the_pod_its_own(caller: Caller, ipam: Ipam) -> None:
    await caller.post("/network/requestipconfigs", plural())
    _, refused = await caller.post("/network/requestipconfigs", plural(desiredIPAddresses=["10.0.0.17"]))
    _, granted = await caller.post("/network/requestipconfigs", plural(desiredIPAddresses=["10.0.0.16"]))
    assert (refused, granted) == ("15", "0")
    assert ipam.pool.keys == {("c1", "eth0")}


async def test_an_empty_pool_fails_to_allocate_and_says_why(caller: Caller) -> None:
    for number in range(4):
        await caller.post("/network/requestipconfigs", plural(f"c{number}"))
    answer, code = await caller.post("/network/requestipconfigs", plural("c9"))
    assert code == "32"
    assert pools.SUBNET in answer["response"]["Message"]


async def test_the_pool_is_shown_by_state(caller: Caller) -> None:
    await caller.post("/network/requestipconfigs", plural())
    held, _ = await caller.post("/debug/ipaddresses", {"IPConfigStateFilter": ["Assigned"]})
    (shown,) = held["IPConfigurationStatus"]
    assert (shown["ID"], shown["IPAddress"], shown["NCID"]) == ("nc-1-0", "10.0.0.16", "nc-1")
    assert shown["state"] == "Assigned"
    assert shown["PodInfo"]["PodName"] == "pod-1"
    free, _ = await caller.post(
        "/debug/ipaddresses", {"IPConfigStateFilter": ["Available", "PendingRelease"]}
    )
    assert len(free["IPConfigurationStatus"]) == 3
    assert (await caller.get("/debug/podcontext"))["PodContext"] == {"c1:eth0": "nc-1-0"}
    assert len((await caller.get("/debug/restdata"))["PodIPConfigState"]) == 4


async def test_only_loopback_may_serve_it(ipam: Ipam) -> None:
    with pytest.raises(listener.BadAddress, match="loopback"):
        async with azure.serve(ipam, "0.0.0.0:0"):
            pass


@pytest.mark.parametrize("text", ["", "10092", "127.0.0.1", "127.0.0.1:x", "host:1", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_said(text: str) -> None:
    with pytest.raises(listener.BadAddress):
        listener.parse(text)


async def test_requests_are_measured_by_route_and_code(caller: Caller) -> None:
    await caller.post("/network/requestipconfigs", plural())
    labels = {"url": "/network/requestipconfigs", "verb": "POST", "cns_return_code": "0"}
    seen = caller.metrics.registry.get_sample_value("http_request_latency_seconds_count", labels)
    assert seen == 1


@dataclass
class View:
    ipam: Ipam
    registry: CollectorRegistry


class TestThePageForOperators:
    async def test_ready_means_synced_with_a_network_container(self, tmp_path: Path) -> None:
        ipam = Ipam(Journal(tmp_path / "journal", "boot"))
        async with (
            web.serve(View(ipam, CollectorRegistry()), ANY) as port,
            aiohttp.ClientSession() as session,
        ):
            base = f"http://127.0.0.1:{port}"
            assert await _status(session, f"{base}/healthz") == 200
            assert await _status(session, f"{base}/readyz") == 503
            ipam.reconcile(pools.granted(0))
            assert await _status(session, f"{base}/readyz") == 200
        ipam.close()

    async def test_metrics_carry_the_names_that_operators_chart(self, ipam: Ipam) -> None:
        metrics = Metrics(CollectorRegistry())
        metrics.registry.register(PoolCollector(lambda: [FIGURES]))
        metrics.exhaustion("podnet", "10.0.0.0/16", True, "vnet-1")
        async with (
            web.serve(View(ipam, metrics.registry), ANY) as port,
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics") as answer,
        ):
            text = await answer.text()
        samples = {s.name: s for f in text_string_to_metric_families(text) for s in f.samples}
        charted = {name: samples[f"cx_ipam_{name}"].value for name in CHARTED}
        assert charted == CHARTED
        labels = {"subnet": "podnet", "subnet_cidr": "10.0.0.0/16", "podnet_arm_id": "vnet-1"}
        assert samples["cx_ipam_total_ips"].labels == labels
        for name in ("ip_assignment", "ip_pool_inc", "ip_pool_dec"):
            assert f"{name}_latency_seconds_count" in samples

    def test_exhaustion_is_counted_when_it_changes(self) -> None:
        metrics = Metrics()
        for state in (False, True, True, False, True):
            metrics.exhaustion("podnet", "10.0.0.0/16", state)
        labels = {"subnet": "podnet", "subnet_cidr": "10.0.0.0/16", "podnet_arm_id": ""}
        name = "cx_ipam_subnet_exhaustion_state_count_total"
        read = metrics.registry.get_sample_value
        assert read(name, labels | {"subnet_exhaustion_state": "0"}) == 1
        assert read(name, labels | {"subnet_exhaustion_state": "1"}) == 2


FIGURES = Figures(
    subnet="podnet",
    subnet_cidr="10.0.0.0/16",
    network="vnet-1",
    assigned=5,
    available=20,
    pending_programming=3,
    pending_release=2,
    requested=31,
    batch=16,
    maximum=250,
)
CHARTED = {
    "pod_allocated_ips": 5,
    "available_ips": 20,
    "batch_size": 16,
    "current_available_ips": 25,
    "expect_available_ips": 26,
    "max_ips": 250,
    "pending_programming_ips": 3,
    "pending_release_ips": 2,
    "primary_ips": 1,
    "requested_ips": 31,
    "secondary_ips": 30,
    "total_ips": 31,
    "subnet_exhaustion_state": 1,
    "subnet_exhaustion_state_count_total": 1,
}


async def _status(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as answer:
        return answer.status

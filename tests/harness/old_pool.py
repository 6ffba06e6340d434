"""The IP pool of a v1alpha CNS and its two generations of pool monitors: values, no network.

`Pool` takes in network containers as CNS does and remembers as `faults` what a real one would choke on. A
monitor looks at the pool and says which spec it would write, if any.
"""

from __future__ import annotations

import ipaddress
import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

AVAILABLE, ASSIGNED = "Available", "Assigned"
PENDING_RELEASE, PENDING_PROGRAMMING = "PendingRelease", "PendingProgramming"
DEFAULT_MAXIMUM = 250


@dataclass
class IP:
    id: str
    address: str
    nc: str
    version: int  # of the NC when it came: what the host must have programmed
    state: str
    pod: int | None = None


@dataclass
class Pool:
    node_ip: str
    ips: dict[str, IP] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    host: dict[str, int] = field(default_factory=dict)  # NC → the version that the host has programmed
    waiting: list[int] = field(default_factory=list)  # pods without an IP
    ids_seen: set[str] = field(default_factory=set)  # every id that ever left

    def of(self, *states: str) -> list[IP]:
        return [ip for ip in self.ips.values() if ip.state in states]

    @property
    def assigned(self) -> dict[int, str]:
        """pod → address."""
        return {ip.pod: ip.address for ip in self.of(ASSIGNED) if ip.pod is not None}

    def ingest(self, containers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Those that are this node's; what they no longer list is forgotten."""
        mine = [nc for nc in containers if nc.get("nodeIP") == self.node_ip]
        for nc in mine:
            self._check(nc)
        granted = {ip["name"]: (nc, ip["ip"]) for nc in mine for ip in nc.get("ipAssignments") or ()}
        self._forget(granted.keys())
        for name, (nc, address) in granted.items():
            if name not in self.ips:
                self._take(name, address, nc["id"], int(nc.get("version") or 0))
        for nc in mine:
            self.versions[nc["id"]] = int(nc.get("version") or 0)
        self.serve()
        return mine

    def program(self) -> None:
        """The host has caught up with every NC."""
        self.host = dict(self.versions)
        for ip in self.of(PENDING_PROGRAMMING):
            if ip.version <= self.host.get(ip.nc, -1):
                ip.state = AVAILABLE
        self.serve()

    def want(self, pods: int) -> None:
        """So many pods from now on; the youngest go first."""
        live = sorted([*self.assigned, *self.waiting])
        for pod in live[pods:]:
            self._end(pod)
        first = max(live, default=0) + 1
        self.waiting += range(first, first + pods - len(live))
        self.serve()

    def serve(self) -> None:
        """Idle IPs to pods that wait."""
        for ip in self.of(AVAILABLE):
            if not self.waiting:
                return
            ip.state, ip.pod = ASSIGNED, self.waiting.pop(0)

    def let_go(self, count: int, *, all_or_nothing: bool) -> list[IP]:
        """Mark idle IPs as PendingRelease, those first that no host has programmed."""
        idle = [*self.of(PENDING_PROGRAMMING), *self.of(AVAILABLE)]
        chosen = idle[: max(0, count)]
        if all_or_nothing and len(chosen) < count:
            return []
        for ip in chosen:
            ip.state = PENDING_RELEASE
        return chosen

    def pending_release(self) -> list[str]:
        return sorted(ip.id for ip in self.of(PENDING_RELEASE))

    def _end(self, pod: int) -> None:
        if pod in self.waiting:
            self.waiting.remove(pod)
        for ip in self.of(ASSIGNED):
            if ip.pod == pod:
                ip.state, ip.pod = AVAILABLE, None

    def _check(self, nc: Mapping[str, Any]) -> None:
        """What a real CNS refuses, and with it the whole NNC."""
        try:
            uuid.UUID(nc["id"])
            ipaddress.ip_interface(nc["primaryIP"])
            ipaddress.ip_network(nc["subnetAddressSpace"])
            if nc["assignmentMode"] != "dynamic":
                raise ValueError(f"assignmentMode is {nc['assignmentMode']}")
            for ip in nc.get("ipAssignments") or ():
                uuid.UUID(ip["name"])
                ipaddress.ip_address(ip["ip"])
        except (KeyError, ValueError) as problem:
            self.faults.append(f"NC {nc.get('id')}: {problem!r}")
        version, before = int(nc.get("version") or 0), self.versions.get(nc["id"], -1)
        held = {ip.id for ip in self.ips.values() if ip.nc == nc["id"]}
        listed = {ip["name"] for ip in nc.get("ipAssignments") or ()}
        if version < before:
            self.faults.append(f"NC {nc['id']}: version fell from {before} to {version}")
        elif version == before and held != listed:
            self.faults.append(f"NC {nc['id']}: other IPs in the same version {version}")

    def _forget(self, still: Iterable[str]) -> None:
        for gone in self.ips.keys() - set(still):
            ip = self.ips[gone]
            if ip.state == ASSIGNED:
                self.faults.append(f"{ip.address} was taken from pod {ip.pod}")
                continue
            if ip.state != PENDING_RELEASE:
                self.faults.append(f"{ip.address} was taken and had not been let go")
            del self.ips[gone]
            self.ids_seen.add(gone)

    def _take(self, name: str, address: str, nc: str, version: int) -> None:
        if name in self.ids_seen:
            self.faults.append(f"the id {name} came back with {address}")
        if any(ip.address == address for ip in self.ips.values()):
            self.faults.append(f"{address} came under a second id")
        state = AVAILABLE if version <= self.host.get(nc, -1) else PENDING_PROGRAMMING
        self.ips[name] = IP(name, address, nc, version, state)


Spec = dict[str, Any]


class Monitor(Protocol):
    """One generation's pool monitor. `look` answers the spec to write, `wrote` is told once it is written."""

    exhausted: bool
    follows_generations: bool  # whether updates with another metadata.generation reach it

    def saw(self, nnc: Mapping[str, Any]) -> None: ...

    def look(self, pool: Pool) -> Spec | None: ...

    def wrote(self, spec: Spec) -> None: ...


class FirstMonitor:
    """One batch a step between two thresholds; what it asked for, it knows from itself."""

    follows_generations = False

    def __init__(self) -> None:
        self.exhausted = False
        self._spec: Spec | None = None
        self._batch = self._maximum = self._least = self._most = 0

    def saw(self, nnc: Mapping[str, Any]) -> None:
        scaler = nnc.get("status", {}).get("scaler") or {}
        self._maximum = max(1, scaler.get("maxIPCount") or 0)
        self._batch = min(max(1, scaler.get("batchSize") or 0), self._maximum)
        request = min(max(1, scaler.get("requestThresholdPercent") or 0), 100)
        release = max(scaler.get("releaseThresholdPercent") or 0, request + 100)
        self._least, self._most = self._batch * request // 100, self._batch * release // 100
        if self._spec is None:
            spec = nnc.get("spec") or {}
            self._spec = {"requestedIPCount": spec.get("requestedIPCount") or 0}
            self._spec["ipsNotInUse"] = sorted(spec.get("ipsNotInUse") or ())

    def look(self, pool: Pool) -> Spec | None:
        if self._spec is None:
            return None
        batch, least, most = (1, 1, 2) if self.exhausted else (self._batch, self._least, self._most)
        requested: int = self._spec["requestedIPCount"]
        used = len(pool.of(ASSIGNED))
        idle = len(pool.ips) - used - len(pool.of(PENDING_RELEASE))
        if requested - used < least:
            more = min(requested + batch - requested % batch, self._maximum)
            return _spec(more, pool) if more != requested else None
        if idle >= most:
            less = pool.let_go(requested % batch or batch, all_or_nothing=False)
            return _spec(requested - len(less), pool)
        if len(self._spec["ipsNotInUse"]) != len(pool.of(PENDING_RELEASE)):
            return _spec(requested, pool)
        return None

    def wrote(self, spec: Spec) -> None:
        self._spec = spec


class SecondMonitor:
    """The target in one step, from demand, batch and buffer."""

    follows_generations = True

    def __init__(self) -> None:
        self.exhausted = False
        self._request: int | None = None
        self._listed: list[str] = []
        self._batch, self._maximum, self._buffer = 0, 0, 0.0

    def saw(self, nnc: Mapping[str, Any]) -> None:
        scaler = nnc.get("status", {}).get("scaler") or {}
        spec = nnc.get("spec") or {}
        self._maximum = min(scaler.get("maxIPCount") or 0, DEFAULT_MAXIMUM)
        self._batch = min(max(scaler.get("batchSize") or 0, 1), self._maximum)
        self._buffer = abs(scaler.get("requestThresholdPercent") or 0) / 100
        self._listed = sorted(spec.get("ipsNotInUse") or ())
        if self._request is None:
            self._request = spec.get("requestedIPCount") or 0

    def look(self, pool: Pool) -> Spec | None:
        if self._request is None or self._batch == 0:
            return None
        batch, buffer = (1, 1.0) if self.exhausted else (self._batch, self._buffer)
        demand = len(pool.of(ASSIGNED)) + len(pool.waiting)
        target = min(batch * math.ceil(buffer + demand / batch), self._maximum)
        surplus = self._request - target
        if surplus > 0 and not pool.let_go(surplus, all_or_nothing=True):
            return None
        spec = _spec(target, pool)
        return None if surplus == 0 and spec["ipsNotInUse"] == self._listed else spec

    def wrote(self, spec: Spec) -> None:
        self._request, self._listed = spec["requestedIPCount"], spec["ipsNotInUse"]


def _spec(count: int, pool: Pool) -> Spec:
    return {"requestedIPCount": count, "ipsNotInUse": pool.pending_release()}

"""Pods on a test cluster, in the words of the tests: a namespace with Deployments, and questions to it."""

from __future__ import annotations

import uuid
from typing import Any

from tests.harness import pause_image
from tests.harness.cluster import Cluster
from tests.harness.cluster_plane import ApiRefused
from tests.harness.rest import eventually


class Workload:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = f"w-{uuid.uuid4().hex[:8]}"
        self._core = f"/api/v1/namespaces/{self.namespace}"
        self._apps = f"/apis/apps/v1/namespaces/{self.namespace}"

    def __enter__(self) -> Workload:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        self.cluster.plane.call("POST", "/api/v1/namespaces", body)
        eventually(self._has_account, patience=30)
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.plane.call("DELETE", f"/api/v1/namespaces/{self.namespace}")
        eventually(self.pods, lambda left: not left, patience=90, every=0.25)

    def deploy(self, name: str, replicas: int, node: str | None = None) -> None:
        """A Deployment of pods that wait; all on one node if named. Rolls in few large steps."""
        labels = {"app": name}
        container = {"name": "wait", "image": pause_image.NAME, "imagePullPolicy": "Never"}
        pod: dict[str, Any] = {
            "containers": [container],
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
        }
        if node:
            pod["nodeSelector"] = {"kubernetes.io/hostname": node}
        spec = {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": "40%", "maxUnavailable": "20%"}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        }
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
        self.cluster.plane.call("POST", f"{self._apps}/deployments", body)

    def scale(self, name: str, replicas: int) -> None:
        body = {"spec": {"replicas": replicas}}
        self.cluster.plane.call("PATCH", f"{self._apps}/deployments/{name}", body)

    def roll(self, name: str) -> str:
        """Every pod is replaced by one with the annotation `rolled`, whose value is the answer."""
        mark = uuid.uuid4().hex
        body = {"spec": {"template": {"metadata": {"annotations": {"rolled": mark}}}}}
        self.cluster.plane.call("PATCH", f"{self._apps}/deployments/{name}", body)
        return mark

    def until_running(self, name: str, count: int, patience: float = 120) -> list[dict[str, Any]]:
        """Exactly so many pods, of the newest template, all ready, and none besides."""

        def settled() -> Any:
            self.cluster.must_run()
            found = self.deployment(name)
            status, generation = found.get("status", {}), found["metadata"]["generation"]
            figures = [status.get(key, 0) for key in ("updatedReplicas", "readyReplicas", "replicas")]
            if status.get("observedGeneration") != generation or figures != [count] * 3:
                return figures
            return len(self.pods(name))  # those that are on their way out are no replicas, but still there

        eventually(settled, lambda seen: seen == count, patience, every=0.25)
        return self.pods(name)

    def deployment(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(f"{self._apps}/deployments/{name}")
        return found

    def pods(self, app: str | None = None) -> list[dict[str, Any]]:
        query = f"?labelSelector=app%3D{app}" if app else ""
        items: list[dict[str, Any]] = self.cluster.get(f"{self._core}/pods{query}")["items"]
        return items

    def events(self, reason: str) -> list[dict[str, Any]]:
        items = self.cluster.get(f"{self._core}/events?fieldSelector=reason%3D{reason}")["items"]
        return list(items)

    def _has_account(self) -> bool:
        """Pods are refused until the namespace's default account is made."""
        try:
            return bool(self.cluster.get(f"{self._core}/serviceaccounts/default"))
        except ApiRefused:
            return False


def addresses(pods: list[dict[str, Any]]) -> list[str]:
    return [pod.get("status", {}).get("podIP", "") for pod in pods]

"""Azure's ClusterSubnetState CRD as far as clients can tell: it is not ours, so our CRDs do not hold it."""

from typing import Any

SUBNET_STATES: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clustersubnetstates.acn.azure.com"},
    "spec": {
        "group": "acn.azure.com",
        "scope": "Namespaced",
        "names": {
            "kind": "ClusterSubnetState",
            "listKind": "ClusterSubnetStateList",
            "plural": "clustersubnetstates",
            "singular": "clustersubnetstate",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "status": {
                                "type": "object",
                                "required": ["exhausted", "timestamp"],
                                "properties": {
                                    "exhausted": {"type": "boolean"},
                                    "timestamp": {"type": "string"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}

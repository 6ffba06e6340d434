"""The wire names, exactly as the designs spell them, oddities included."""

from typing import Any

import pytest
import yaml

from subnetes.api import nodenetworkconfig_v1alpha as v1alpha
from subnetes.api.clusternetwork import ClusterNetwork
from subnetes.api.clustersubnet import ClusterSubnet
from subnetes.api.core import Event, Lease, Node, Pod, Secret
from subnetes.api.meta import Object
from subnetes.api.model import decode, encode, from_builtins, to_builtins, wire_name
from subnetes.api.nad import NetworkAttachmentDefinition
from subnetes.api.network import Network, NetworkConf, NetworkSpec, VxLanConf
from subnetes.api.networkclass import NetworkClass
from subnetes.api.nodenetwork import NodeNetwork
from subnetes.api.nodenetworkconfig import NodeNetworkConfig, NodeNetworkConfigSpec

NNC_V1BETA1 = """
apiVersion: acn.azure.com/v1beta1
kind: NodeNetworkConfig
metadata: {name: nodename, namespace: kube-system}
spec:
  availabilityZone: 1
  releasedIPs: [abc-ip-123-guid]
  secondaryIPs: {abc-nc-123-guid: 16}
status:
  networkContainers:
  - assignmentMode: dynamic
    defaultGateway: 10.241.0.1
    defaultGatewayV6: fd00::1
    id: abc-nc-123-guid
    macAddress: 00:11:22:33:44:55
    nodeIP: 10.240.0.5
    primaryIP: 10.241.0.38
    primaryIPV6: fd00::38
    resourceGroupID: rg-id
    secondaryIPCount: 1
    secondaryIPs:
    - {address: 10.241.0.2, id: abc-ip-123-guid}
    status: NCUpdateSuccess
    subcriptionID: abc-sub-123-guid
    subnetAddressSpace: 10.241.0.0/16
    subnetAddressSpaceV6: fd00::/64
    subnetName: podnet
    type: vnet
    version: 49
    vnetID: vnet-id
  status: Updating
"""

NNC_V1ALPHA = """
apiVersion: acn.azure.com/v1alpha
kind: NodeNetworkConfig
metadata: {name: nodename, namespace: kube-system}
spec:
  availabilityZone: 1
  requestedIPCount: 16
  ipsNotInUse: [abc-ip-123-guid]
status:
  assignedIPCount: 1
  networkContainers:
  - assignmentMode: dynamic
    defaultGateway: 10.241.0.1
    defaultGatewayV6: fd00::1
    id: abc-nc-123-guid
    ipAssignments:
    - {ip: 10.241.0.2, name: abc-ip-123-guid}
    macAddress: 00:11:22:33:44:55
    nodeIP: 10.240.0.5
    primaryIP: 10.241.0.38
    primaryIPV6: fd00::38
    resourceGroupID: rg-id
    status: NCUpdateSuccess
    subcriptionID: abc-sub-123-guid
    subnetAddressSpace: 10.241.0.0/16
    subnetAddressSpaceV6: fd00::/64
    subnetID: podnet
    subnetName: podnet
    type: vnet
    version: 49
    vnetID: vnet-id
  scaler:
    batchSize: 16
    maxIPCount: 250
    releaseThresholdPercent: 150
    requestThresholdPercent: 50
  status: Updating
"""

CLUSTER_SUBNET = """
apiVersion: acn.azure.com/v1alpha1
kind: ClusterSubnet
metadata: {name: subnet, namespace: kube-system}
spec:
  addressSpace: [10.241.0.0/16, fd00::/64]
  exclude: [10.241.0.9]
  gateway: [10.241.0.1]
  networkID: vnet-id
  nodeSelector:
    matchLabels: {pool: a}
    matchExpressions:
    - {key: gpu, operator: DoesNotExist}
  scaler: {batch: 8, buffer: 0.25}
  thresholds: {upper: 0.95, lower: 0.85}
status:
  capacity: 65530
  conditions:
  - type: Ready
    status: "True"
    reason: Known
    message: m
    lastTransitionTime: "2026-01-02T03:04:05Z"
    observedGeneration: 1
  exhausted: true
  reserved: 60000
  scaler: {batch: 8, buffer: 0.25}
  timestamp: 123456789
"""

NETWORK_CLASS = """
apiVersion: networking.subnetes.io/v1beta1
kind: NetworkClass
metadata: {name: vlan}
spec: {engine: vlan, cniName: bridge}
status: {conditions: []}
"""

CLUSTER_NETWORK = """
apiVersion: networking.subnetes.io/v1beta1
kind: ClusterNetwork
metadata: {name: fabric}
spec:
  description: the racks
  NetworkClassName: vlan
  DefaultOptions:
    vlanOptions:
      nics: [eth0, eth1]
      bond: {mode: 802.3ad, miimon: 50}
      mtu: 9000
      vlanRange: {min: 100, max: 199}
status: {conditions: [], readyNodes: 0, desiredNodes: 3}
"""

NODE_NETWORK = """
apiVersion: networking.subnetes.io/v1beta1
kind: NodeNetwork
metadata: {name: fabric-node-1}
spec:
  description: the racks
  nodeName: node-1
  clusterNetworkName: fabric
  options:
    vxLanOptions:
      nic: eth0
      underlayCIDR: 10.0.0.0/8
      dstPort: 8472
      mtu: 1450
      vniRange: {min: 1, max: 9}
status:
  conditions: []
  devices:
  - {name: br-1, type: bridge}
  vtepAddress: 10.0.0.5
"""

NETWORK = """
apiVersion: networking.subnetes.io/v1beta1
kind: Network
metadata: {name: green, namespace: default}
spec:
  clusterNetworkName: fabric
  conf:
    vlanConf: {vid: 100}
    vxLanConf: {VNI: 100}
  subnetName: subnet
status: {conditions: []}
"""

NAD = """
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: green, namespace: default}
spec: {config: "{}"}
"""

LEASE = """
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: leader, namespace: kube-system}
spec:
  holderIdentity: me
  leaseDurationSeconds: 15
  acquireTime: "2026-01-02T03:04:05.000000Z"
  renewTime: "2026-01-02T03:04:05.000000Z"
  leaseTransitions: 0
"""

EVENT = """
apiVersion: v1
kind: Event
metadata: {name: e, namespace: default}
involvedObject:
  {apiVersion: v1, kind: Pod, namespace: default, name: p, uid: u, resourceVersion: "1", fieldPath: f}
reason: NoIPs
message: m
type: Warning
action: Assign
count: 2
firstTimestamp: "2026-01-02T03:04:05Z"
lastTimestamp: "2026-01-02T03:04:05Z"
eventTime: "2026-01-02T03:04:05.000000Z"
series: {count: 2, lastObservedTime: "2026-01-02T03:04:05.000000Z"}
source: {component: c, host: h}
reportingComponent: c
reportingInstance: h
"""

DOCUMENTS: list[tuple[type[Object], str]] = [
    (NodeNetworkConfig, NNC_V1BETA1),
    (v1alpha.NodeNetworkConfig, NNC_V1ALPHA),
    (ClusterSubnet, CLUSTER_SUBNET),
    (NetworkClass, NETWORK_CLASS),
    (ClusterNetwork, CLUSTER_NETWORK),
    (NodeNetwork, NODE_NETWORK),
    (Network, NETWORK),
    (NetworkAttachmentDefinition, NAD),
    (Lease, LEASE),
    (Event, EVENT),
]


def _unknown(value: Any) -> list[str]:
    """Every field name, at any depth, that the structs do not know."""
    if isinstance(value, list):
        return [name for each in value for name in _unknown(each)]
    if not hasattr(value, "__struct_fields__"):
        return []
    inside = [getattr(value, name) for name in value.__struct_fields__ if name != "unknown"]
    return [*getattr(value, "unknown", {}), *(name for each in inside for name in _unknown(each))]


@pytest.mark.parametrize(("kind", "text"), DOCUMENTS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_field_of_the_document_is_known_and_keeps_its_name(kind: type[Object], text: str) -> None:
    document = yaml.safe_load(text)
    value = from_builtins(kind, document)
    assert _unknown(value) == []
    assert to_builtins(value) == document
    assert (value.resource.api_version, value.resource.kind) == (document["apiVersion"], document["kind"])


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("node_ip", "nodeIP"),
        ("secondary_ips", "secondaryIPs"),
        ("ips_not_in_use", "ipsNotInUse"),
        ("requested_ip_count", "requestedIPCount"),
        ("primary_ip_v6", "primaryIPV6"),
        ("resource_group_id", "resourceGroupID"),
        ("underlay_cidr", "underlayCIDR"),
        ("cni_name", "cniName"),
    ],
)
def test_attributes_become_wire_names(attribute: str, name: str) -> None:
    assert wire_name(attribute) == name


def test_an_empty_request_is_not_an_absent_one() -> None:
    absent = decode(NodeNetworkConfig, b'{"metadata": {"name": "n"}, "spec": {}}')
    empty = decode(NodeNetworkConfig, b'{"metadata": {"name": "n"}, "spec": {"secondaryIPs": {}}}')
    assert absent.spec == NodeNetworkConfigSpec(secondary_ips=None)
    assert empty.spec == NodeNetworkConfigSpec(secondary_ips={})
    assert to_builtins(absent)["spec"] == {}
    assert to_builtins(empty)["spec"] == {"secondaryIPs": {}}


def test_null_counts_as_absent() -> None:
    sent = b'{"spec": {"clusterNetworkName": "f", "conf": {"vlanConf": null, "vxLanConf": {"VNI": 7}}}}'
    conf = NetworkConf(vx_lan_conf=VxLanConf(vni=7))
    assert decode(Network, sent).spec == NetworkSpec(cluster_network_name="f", conf=conf)


def test_a_view_reads_its_fields_and_minds_no_others() -> None:
    pod = decode(
        Pod,
        b'{"metadata": {"name": "p", "uid": "u", "selfLink": "x", "managedFields": [{"a": 1}]},'
        b' "spec": {"nodeName": "n", "hostNetwork": true, "containers": [{"name": "c"}]},'
        b' "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1", "more": 1}], "qosClass": "x"}}',
    )
    assert (pod.metadata.uid, pod.spec.node_name, pod.spec.host_network) == ("u", "n", True)
    assert [each.ip for each in pod.status.pod_ips or []] == ["10.0.0.1"]
    node = decode(
        Node,
        b'{"metadata": {"name": "n", "labels": {"a": "b"}}, "spec": {"unschedulable": true, "podCIDR": "x"},'
        b' "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],'
        b' "conditions": [{"type": "Ready", "status": "True", "reason": "r"}], "images": []}}',
    )
    assert node.spec.unschedulable
    assert [(each.type, each.address) for each in node.status.addresses or []] == [("InternalIP", "10.0.0.1")]
    assert [(each.type, each.status) for each in node.status.conditions or []] == [("Ready", "True")]


def test_secrets_hold_bytes() -> None:
    secret = decode(Secret, b'{"metadata": {"name": "s"}, "data": {"key": "AAE="}}')
    assert secret.data == {"key": b"\0\1"}
    assert b'"key":"AAE="' in encode(secret)


def test_an_object_says_its_kind_without_being_told() -> None:
    assert to_builtins(NodeNetworkConfig()) == {
        "apiVersion": "acn.azure.com/v1beta1",
        "kind": "NodeNetworkConfig",
        "metadata": {},
    }

"""The value types that several kinds share, each with the limits its schema states.

Used inside `Annotated` in the kinds. Numbers, lengths and patterns bind our own decoder as well as the API
server; formats and rules bind the API server alone, because a reader should not choke on what it admitted.
"""

from typing import Annotated, Any

from msgspec import Meta

from subnetes.api.declaration import Rule


def schema(**keywords: Any) -> Meta:
    """Schema keywords that the API server enforces and our decoder does not look at."""
    return Meta(extra_json_schema=keywords)


def one_of(*values: str) -> Meta:
    return schema(enum=list(values))


def ruled(*rules: Rule) -> Meta:
    return Meta(extra_json_schema={"x-kubernetes-validations": [rule.to_schema() for rule in rules]})


def keyed_by(*fields: str) -> Meta:
    """A list whose items different writers may own one by one."""
    return Meta(
        extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(fields)}
    )


ATOMIC_LIST = Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})
ATOMIC_MAP = Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})
SET = Meta(extra_json_schema={"x-kubernetes-list-type": "set"})
NULLABLE = Meta(extra_json_schema={"nullable": True})

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_IP_RULE = Rule("isIP(self)", "must be an IP address, such as 10.1.0.1 or fd00::1")
_RANGE_RULE = Rule(
    "isIP(self) || isCIDR(self) || (self.split('-').size() == 2 && self.split('-').all(ip, isIP(ip)))",
    "must be an IP address (10.1.0.9), a range (10.1.0.10-10.1.0.20) or a CIDR (10.1.0.32/28)",
)

ONE_PER_FAMILY = Rule(
    "size(self) < 2 || self[0].contains(':') != self[1].contains(':')",
    "at most one for IPv4 and one for IPv6",
)

Count = Annotated[int, Meta(ge=0)]
ObjectName = Annotated[str, Meta(max_length=253, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
ClusterNetworkName = Annotated[str, Meta(max_length=63, pattern=rf"^{_LABEL}(\.{_LABEL})*$")]
DeviceName = Annotated[str, Meta(max_length=15, pattern=r"^[^/:\s]+$")]
MTU = Annotated[int, Meta(ge=68, le=65535)]

CIDR = Annotated[str, Meta(max_length=49), schema(format="cidr")]
IPAddress = Annotated[str, Meta(max_length=45), ruled(_IP_RULE)]
AddressRange = Annotated[str, Meta(max_length=91), ruled(_RANGE_RULE)]
Timestamp = Annotated[str, schema(format="date-time")]

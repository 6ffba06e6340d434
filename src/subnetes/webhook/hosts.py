"""The names that the API server calls us by: DNS names in lower case, addresses at their shortest."""

import ipaddress
import re

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"({_LABEL}\.)*(?![0-9]+$){_LABEL}")  # whose last label is a number is an address
_LONGEST = 253


def normal(text: str) -> str:
    """As all of us write it; ValueError if it is no name or address of a host."""
    try:
        if "%" not in text:  # a zone means something on one machine only
            return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    name = text.lower()
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} is no name or address of a host")
    return name

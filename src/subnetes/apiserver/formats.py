"""The `format` and `pattern` keywords of CRD schemas, for `values`; rules ask it for IP addresses, too."""

import ipaddress
import re
from collections.abc import Callable
from datetime import date
from functools import cache

Accepts = Callable[[str], object]

INTEGERS = ("int32", "int64")


def parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def is_ip(text: str) -> bool:
    return "%" not in text and parses(ipaddress.ip_address, text)


def is_cidr(text: str) -> bool:
    """With a prefix length, not a mask; bits beyond the prefix may be set."""
    return re.search(r"/\d+$", text) is not None and "%" not in text and parses(ipaddress.ip_interface, text)


def _date_time(text: str) -> bool:
    day, _, clock = text.lower().partition("t")
    time = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(z|[+-]\d\d:\d\d)"
    return re.fullmatch(time, clock) is not None and len(day) == 10 and parses(date.fromisoformat, day)


FORMATS: dict[str, Accepts] = {
    "ipv4": lambda text: "." in text and is_ip(text),
    "ipv6": lambda text: ":" in text and is_ip(text),
    "cidr": is_cidr,
    "date-time": _date_time,
    **dict.fromkeys(INTEGERS, lambda _: True),
}


@cache
def compile_pattern(pattern: str) -> Accepts | None:
    """A function that searches a text for Go's regular expression, or None if Python reads it differently."""
    if "[:" in pattern:
        return None
    whole = pattern.endswith("$") and not pattern.endswith(r"\$")
    try:
        return re.compile(pattern[:-1] + r"\Z" if whole else pattern, re.ASCII).search
    except re.error:
        return None

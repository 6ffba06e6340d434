"""The targets of requests: paths whose parts cannot break out of their place, and query strings. Pure.

Controllers say the same few thousand names over and over, so what was said before is remembered: the quoting
costs more than everything else that our part of a call does.
"""

from functools import lru_cache
from urllib.parse import quote, urlencode

from subnetes.api.resource import Resource
from subnetes.kube.errors import BadRequest


@lru_cache(8192)
def path_of(
    resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str | None = None
) -> str:
    """The path of a collection, or of one object when there is a name."""
    return resource.path(
        None if namespace is None else _segment(namespace),
        None if name is None else _segment(name),
        subresource,
    )


def query(parameters: dict[str, str | int | None]) -> str:
    """The parameters that say something; empty and absent ones are left out."""
    return urlencode({key: value for key, value in parameters.items() if value not in ("", None)})


def _segment(text: str) -> str:
    # Kubernetes' own rule for names in paths. An empty name would turn one object into its collection.
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise BadRequest(f"{text!r} cannot be the name of an object")
    return quote(text, safe="-._:@")

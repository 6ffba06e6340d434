"""What may be an object's name: each function returns what is wrong with one, in Kubernetes' words."""

import re

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_BOTH_ENDS = "and must start and end with an alphanumeric character"
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{_BOTH_ENDS} (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')"
)
_LABEL_RULE = (
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_BOTH_ENDS} "
    f"(e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)


def subdomain(text: str) -> list[str]:
    """The rule of most kinds."""
    wrong = ["must be no more than 253 characters"] if len(text) > 253 else []
    return wrong if re.fullmatch(_SUBDOMAIN, text) else [*wrong, _SUBDOMAIN_RULE]


def label(text: str) -> list[str]:
    """The rule of namespaces."""
    if "." in text:
        return ["must not contain dots"]
    wrong = ["must be no more than 63 characters"] if len(text) > 63 else []
    return wrong if re.fullmatch(_LABEL, text) else [*wrong, _LABEL_RULE]

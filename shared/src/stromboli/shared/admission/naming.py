"""Names that Kubernetes takes."""

import re

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")

LABEL_EXPECTED = "at most 63 lower case letters, digits and '-', beginning and ending with one"
SUBDOMAIN_EXPECTED = "lower case letters, digits, '-' and '.', at most 253 characters"


_FRACTIONAL = ("cpu", "memory", "ephemeral-storage")


def is_counted(resource: str) -> bool:
    """Whether a resource comes in whole pieces only, as devices do."""
    return resource not in _FRACTIONAL


def is_label(name: str) -> bool:
    """RFC 1123 label: what a container, a task or a pod's hostname may be called."""
    return len(name) <= 63 and _LABEL.match(name) is not None


def is_subdomain(name: str) -> bool:
    """RFC 1123 subdomain: what most objects may be called."""
    return len(name) <= 253 and _SUBDOMAIN.match(name) is not None

"""Names that Kubernetes takes."""

import re
from collections.abc import Sequence

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

LABEL_EXPECTED = "at most 63 lower case letters, digits and '-', beginning and ending with one"
SUBDOMAIN_EXPECTED = "lower case letters, digits, '-' and '.', at most 253 characters"
KEY_EXPECTED = (
    "a name of at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or "
    "digit; before it may stand a domain in lower case and '/'"
)
VALUE_EXPECTED = (
    "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
)

_MAX_LISTED = 10
"""Names that a refusal lists: one sees what is meant, and a thousand refusals are no novel."""
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""What a node itself gives to containers, in any amount; anything else comes in whole pieces."""


def is_counted(resource: str) -> bool:
    """Whether a resource comes in whole pieces only, as devices do."""
    return resource not in NATIVE


def is_label(name: str) -> bool:
    """RFC 1123 label: what a container, a task or a pod's hostname may be called."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """RFC 1123 subdomain: what most objects may be called."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_qualified(key: str) -> bool:
    """What a label, an annotation or a resource may be called: ``name`` or ``domain/name``."""
    domain, slash, name = key.rpartition("/")
    return is_label_value(name) and bool(name) and (not slash or is_subdomain(domain))


def is_label_value(value: str) -> bool:
    """What may stand under a label; nothing may."""
    return not value or (len(value) <= 63 and _PART.fullmatch(value) is not None)


def join_limited(names: Sequence[str], without: str = "") -> str:
    """Names as a refusal lists them: the first ones, and how many more. ``without``: one of them
    that is not meant."""
    first = [name for name in names[: _MAX_LISTED + 1] if name != without][:_MAX_LISTED]
    more = len(names) - len(first) - bool(without)
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")

"""Kubernetes' rules for names."""

import difflib
import functools
import re
from collections.abc import Sequence

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

LABEL_EXPECTED = (
    "at most 63 lower case letters, digits and '-', beginning and ending with a letter or digit"
)
SUBDOMAIN_EXPECTED = "lower case letters, digits, '-' and '.', at most 253 characters"
KEY_EXPECTED = (
    "a name of at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or "
    "digit; optionally after a domain in lower case and '/'"
)
VALUE_EXPECTED = (
    "at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
)

_MAX_COMPARED = 500
"""Number of names that are compared with a misspelt one: some milliseconds."""
_MAX_LISTED = 10
"""Number of names that a message lists; further names are only counted."""
NATIVE = ("cpu", "memory", "ephemeral-storage")
"""Resources of the node itself, which may be requested in any amount; all others come in whole
units."""


def is_counted(resource: str) -> bool:
    """Whether a resource comes in whole units only, as devices do."""
    return resource not in NATIVE


def is_label(name: str) -> bool:
    """Whether the name is an RFC 1123 label, as for a container, a task or a pod's hostname."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def is_subdomain(name: str) -> bool:
    """Whether the name is an RFC 1123 subdomain, as for most objects."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_qualified(key: str) -> bool:
    """Whether the key is a valid name of a label, an annotation or a resource: ``name`` or
    ``domain/name``.
    """
    domain, slash, name = key.rpartition("/")
    return is_label_value(name) and bool(name) and (not slash or is_subdomain(domain))


def is_label_value(value: str) -> bool:
    """Whether the text is a valid label value; it may be empty."""
    return not value or (len(value) <= 63 and _PART.fullmatch(value) is not None)


def join_limited(names: Sequence[str], without: str = "") -> str:
    """The names as text for a message: the first ones, and the number of the others. ``without``: a
    name to leave out.
    """
    first = [name for name in names[: _MAX_LISTED + 1] if name != without][:_MAX_LISTED]
    more = len(names) - len(first) - bool(without)
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


@functools.lru_cache(maxsize=64)  # a bulk request repeats the same misspelt name
def alternatives(name: str, known: tuple[str, ...], kinds: str, create: str) -> str:
    """What to use instead of an absent object, for a message: the nearest known name, all names, or
    ``create``, the command that creates it. ``kinds``: their kind, such as ``Queues``."""
    if not known:
        return f"create it first: {create}"
    close = difflib.get_close_matches(name, known[:_MAX_COMPARED], n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"{meant}{kinds} that you can use: {join_limited(known)}; or create it: {create}"

"""The HTTP header ``Warning``, as API servers send it: ``299 - "text"``, separated by commas.

The text is ASCII in a quoted string (RFC 7234, 5.5). Other characters are written as in Python's
``\\xNN``, because a warning repeats parts of what a user submitted and a header must not be split.
"""

import re
from collections.abc import Sequence

NAME = "Warning"
MAX_WARNINGS, MAX_LENGTH = 10, 256
"""As API servers pass them on from webhooks."""
_VALUE = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    """The first warnings, each cut to the largest length."""
    return tuple(each[:MAX_LENGTH] for each in warnings[:MAX_WARNINGS])


def encode(warnings: Sequence[str]) -> str:
    """The header's value, of at most ``MAX_WARNINGS`` warnings; empty without any."""
    return ", ".join(f'299 - "{_quoted(each)}"' for each in bounded(warnings))


def decode(value: str) -> list[str]:
    """The texts of a header's value; what is no warning is left out."""
    return [_ESCAPED.sub(r"\1", text) for text in _VALUE.findall(value)]


def _quoted(text: str) -> str:
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    printable = _UNPRINTABLE.sub(lambda found: repr(found.group())[1:-1], ascii_text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')

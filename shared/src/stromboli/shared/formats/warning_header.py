"""The HTTP header ``Warning``, as API servers send it: ``299 - "text"``, separated by commas.

The text is ASCII in a quoted string (RFC 7234, 5.5). Other characters are written as in Python's
``\\xNN``, because a warning repeats parts of what a user submitted and a header must not be split.
"""

import re
from collections.abc import Sequence

NAME = "Warning"
MAX_WARNINGS, MAX_LENGTH = 10, 256
"""Limits of the number and length of warnings, as API servers apply them to webhooks' warnings."""
_VALUE = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def bounded(warnings: Sequence[str]) -> tuple[str, ...]:
    """The first ``MAX_WARNINGS`` warnings, each cut to the maximum length."""
    return tuple(each[:MAX_LENGTH] for each in warnings[:MAX_WARNINGS])


def encode(warnings: Sequence[str]) -> str:
    """The header's value, of at most ``MAX_WARNINGS`` warnings; empty without any."""
    return ", ".join(f'299 - "{_quoted(each)}"' for each in bounded(warnings))


def decode(value: str) -> list[str]:
    """The texts of the warnings in a header's value; parts that are not warnings are ignored."""
    return [_ESCAPED.sub(r"\1", text) for text in _VALUE.findall(value)]


def _quoted(text: str) -> str:
    ascii_text = text.encode("ascii", "backslashreplace").decode("ascii")
    printable = _UNPRINTABLE.sub(lambda match: repr(match.group())[1:-1], ascii_text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')

"""Regular expressions from users, in Go's syntax and matched in linear time.

Volcano matches with Go's ``regexp``, which is RE2: a match takes time linear in the text, for any
pattern. Python's ``re`` backtracks, so that ``(a+)+$`` on a name of 253 characters never ends. RE2
has no look-around and no backreferences; Go rejects them, too.

The time of a match also grows with the compiled pattern. ``MAX_INSTRUCTIONS`` limits it: a name of
60 characters takes at most about 0.1 ms, so 10,000 nodes take about a second at worst.
"""

from typing import Protocol

import re2

MAX_LENGTH = 4096
"""Maximum length of a pattern in characters."""
MAX_INSTRUCTIONS = 2000
"""Maximum number of instructions of a compiled pattern. A list of 40 node names has about 800."""
MAX_MEMORY = 2**20
"""Bytes that a match may use for its states; if it needs more, it takes longer instead."""
MAX_SHOWN = 100
"""Number of characters of a pattern that an error message shows."""


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """A truthy object if the pattern matches anywhere in the text."""


def compile_pattern(pattern: str) -> Pattern:
    """The compiled pattern. Raises ValueError that gives the reason for an invalid one."""
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"has {len(pattern)} characters, at most {MAX_LENGTH} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        message = f"{_shown(pattern)} is not a regular expression"
        raise ValueError(f"{message}: {_reason(error)}") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{_shown(pattern)} is not valid Unicode") from error
    if compiled.programsize > MAX_INSTRUCTIONS:
        raise ValueError(
            f"{_shown(pattern)} is too large: repeat less or split it into several members"
        )
    compiled_pattern: Pattern = compiled
    return compiled_pattern


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= MAX_SHOWN else f"{pattern[:MAX_SHOWN]}…")


def _reason(error: Exception) -> str:
    """The text of RE2's error, which is bytes and may contain the whole pattern."""
    message = error.args[0] if error.args else b""
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    return text[:MAX_SHOWN]

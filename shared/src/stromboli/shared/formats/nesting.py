"""Extracts the outer levels of JSON documents that are nested too deeply for a decoder.

If a schema preserves unknown fields, an API server stores up to 10,000 levels, while decoders
recurse and fail. One such object must not make the other objects of a list unreadable. Costs
O(bytes) time and little memory.
"""

import re
from collections.abc import Iterator

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def outer(raw: bytes, levels: int) -> bytes:
    """The document with ``null`` for each array and object below ``levels``."""
    kept, start = [], 0
    for begin, end in _spans(raw, levels + 1):
        kept += [raw[start:begin], b"null"]
        start = end
    return b"".join([*kept, raw[start:]])


def parts(raw: bytes, level: int) -> list[bytes]:
    """The arrays and objects that begin at ``level``; the document itself is level 1."""
    return [raw[begin:end] for begin, end in _spans(raw, level)]


def _spans(raw: bytes, wanted: int) -> Iterator[tuple[int, int]]:
    level = begin = 0
    for token in _TOKEN.finditer(raw):
        match token[0]:
            case b"{" | b"[":
                level += 1
                if level == wanted:
                    begin = token.start()
            case b"}" | b"]":
                if level == wanted:
                    yield begin, token.end()
                level -= 1
            case _:
                pass

"""Mutations of valid inputs: of bytes, and of JSON documents. Deterministic by a seed.

Inputs that are random from the first byte die in the parser. These begin with one that is valid and
change a few things, often to what has broken decoders before.
"""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

LARGEST_BYTES = 3 * 1024 * 1024
"""As large as a request may be."""
DIGITS = "9" * 5_000
TOKENS: tuple[bytes, ...] = (
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc3\x28",
    b"\x00",
    b"\\ud800",
    b"\\u0000",
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"]" * 50,
    DIGITS.encode(),
    b"1e999",
    b"-0",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b'""',
    b"\r\n",
    b"\xef\xbb\xbf",
    b"&a [*a,*a]",
    b"<<: *a",
    b"!!python/object:os.system x",
    b"---\n",
    b"\t",
    b"? ",
    b"| ",
    b"%YAML 9.9\n",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    2**64,
    10**30,
    1.5,
    1e308,
    "",
    " ",
    "x",
    "X" * 70_000,
    DIGITS,
    "\x00",
    "\u2028",
    "a/b",
    "../..",
    "%2e",
    "2026-01-01T00:00:00",
    "2026-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "253402300800",
    "1e999999999",
    "-1e999999999",
    "9" * 100_000,
    "1Ki",
    "100m",
    "0x10",
    "1h" * 40,
    f"{DIGITS}h",
    "*/0 * * * *",
    "0 0 31 2 *",
    "@every 1ns",
    f"*/{DIGITS} * * * *",
    f"0-{DIGITS}",
    "0-99999999",
    "0-10:0",
    "a=b",
    "{}",
    "[" * 3_000,
    "{{.Name}}",
    "SyncJob",
    "*",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    {"a": {"a": {}}},
    {"name": "x"},
)
Path = tuple[str | int, ...]


def of_bytes(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """The input with one to four changes of its bytes."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(changed))
        to = min(len(changed), at + random.randint(0, 16))
        match random.randrange(6):
            case 0 if changed:
                changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            case 1:
                changed[at:at] = random.choice(TOKENS)
            case 2:
                del changed[at:to]
            case 3:
                changed[at:at] = changed[at:to] * random.choice((2, 10, 1_000))
            case 4:
                other = random.choice(corpus)
                changed[at:to] = other[random.randint(0, len(other)) :][:500]
            case _:
                changed[at:to] = random.randbytes(to - at)
    return bytes(changed[:LARGEST_BYTES])


def of_document(random: Random, document: Any, others: Sequence[Any]) -> Any:
    """A copy of the document with one to four changes of its parts."""
    changed = copy.deepcopy(document)
    for _ in range(random.randint(1, 4)):
        paths = list(_paths(changed))
        if not paths:
            return random.choice(VALUES)
        path = random.choice(paths)
        holder = _at(changed, path[:-1])
        key = path[-1]
        match random.randrange(8):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(random.choice(VALUES))
            case 3 if isinstance(holder, dict):
                holder[random.choice(("x", "", "a/b", str(key) + "e"))] = holder[key]
            case 4:
                del holder[key]
            case 5 if isinstance(holder, list) and isinstance(key, int):
                holder.extend(copy.deepcopy(holder[key]) for _ in range(random.choice((1, 9, 300))))
            case 6:
                holder[key] = _nested(holder[key], random.choice((1, 20, 150)))
            case _:
                other = random.choice(others)
                found = list(_paths(other))
                if found:
                    holder[key] = copy.deepcopy(_at(other, random.choice(found)))
    return changed


def of_json(random: Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    """The input changed as a document, as bytes, or both."""
    if random.random() < 0.7:
        try:
            others = [json.loads(random.choice(corpus))]
            document = of_document(random, json.loads(data), others)
            data = json.dumps(document).encode()[:LARGEST_BYTES]
        except (ValueError, RecursionError):
            pass
        if random.random() < 0.8:
            return data
    return of_bytes(random, data, corpus)


def _paths(document: Any, depth: int = 0) -> list[Path]:
    found: list[Path] = []
    items: Any = ()
    if depth < 20 and isinstance(document, dict):
        items = document.items()
    elif depth < 20 and isinstance(document, list):
        items = enumerate(document[:20])
    for key, value in items:
        found.append((key,))
        found.extend((key, *below) for below in _paths(value, depth + 1))
    return found


def _at(document: Any, path: Path) -> Any:
    for key in path:
        document = document[key]
    return document


def _nested(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value

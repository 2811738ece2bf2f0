"""Changes of a document, compared with concurrent changes of the same document. Pure.

A *partial* document contains only what differs from another one: changed members of objects; lists
of the same length item by item, with ``{}`` for an unchanged item; every other list as a whole.
Admission merges it in the same way.
"""

from collections.abc import Iterator
from typing import Any

UNCHANGED: dict[str, Any] = {}


def partial(before: Any, wanted: Any) -> Any:
    """The members of ``wanted`` that differ from ``before``; ``UNCHANGED`` if none does."""
    if before == wanted:
        return UNCHANGED
    if isinstance(before, dict) and isinstance(wanted, dict):
        return {
            name: partial(before.get(name), value)
            for name, value in wanted.items()
            if name not in before or before[name] != value
        }
    if _are_merged(before, wanted):
        return [partial(old, new) for old, new in zip(before, wanted, strict=True)]
    return wanted


def overlap(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The paths that two partial documents both change."""
    if UNCHANGED in (ours, theirs):
        return []
    if isinstance(ours, dict) and isinstance(theirs, dict):
        both = [name for name in ours if name in theirs]
        inner = (overlap(ours[name], theirs[name], f"{path}.{name}") for name in both)
        return [conflict_path for each in inner for conflict_path in each]
    if _are_merged(ours, theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [it for n, (a, b) in pairs for it in overlap(a, b, f"{path}[{n}]")]
    return [path.removeprefix(".")]


def removed(before: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """The paths of members that ``wanted`` lacks."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        for name, value in before.items():
            if name not in wanted:
                yield f"{path}.{name}".removeprefix(".")
            else:
                yield from removed(value, wanted[name], f"{path}.{name}")
    elif _are_merged(before, wanted):
        for number, (old, new) in enumerate(zip(before, wanted, strict=True)):
            yield from removed(old, new, f"{path}[{number}]")


def _are_merged(one: Any, other: Any) -> bool:
    """Whether two lists of objects are merged item by item."""
    return (
        isinstance(one, list)
        and isinstance(other, list)
        and len(one) == len(other)
        and all(isinstance(each, dict) for each in (*one, *other))
    )

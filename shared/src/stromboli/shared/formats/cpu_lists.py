"""Lists of CPUs as the kernel and the kubelet write them: ``0-3,8``."""

from collections.abc import Iterable

HIGHEST = 65_535
"""The highest accepted CPU number, above the limit of any kernel. A list with a higher number is
invalid, because expanding it could exhaust the memory."""


def parsed(text: str) -> frozenset[int]:
    """The CPUs of a list such as ``0-3,8``. Raises ValueError for an invalid list."""
    cpus: set[int] = set()
    for part in text.split(","):
        if part.strip():
            first, dash, last = part.strip().partition("-")
            low, high = int(first), int(last) if dash else int(first)
            if low < 0 or high < low or high > HIGHEST:
                raise ValueError(f"{part.strip()!r} is not a range of CPUs")
            cpus.update(range(low, high + 1))
    return frozenset(cpus)


def written(cpus: Iterable[int]) -> str:
    """The CPUs as a list; runs of three or more are written as ranges."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    at = 0
    while at < len(ordered):
        end = at
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        if end - at >= 2:
            parts.append(f"{ordered[at]}-{ordered[end]}")
        else:
            parts.extend(str(cpu) for cpu in ordered[at : end + 1])
        at = end + 1
    return ",".join(parts)

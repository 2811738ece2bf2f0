"""Finds dependency cycles, for admission, which rejects them, and for the controller."""

from collections.abc import Collection, Mapping


def members_of_cycles(needs: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Names that are in a dependency cycle or depend, directly or indirectly, on one. O(names +
    dependencies).

    ``needs``: name -> its dependencies; names that are not keys are ignored.
    """
    missing = {name: {it for it in wanted if it in needs} for name, wanted in needs.items()}
    waiting_for: dict[str, list[str]] = {}
    for name, wanted in missing.items():
        for first in wanted:
            waiting_for.setdefault(first, []).append(name)
    free = [name for name, wanted in missing.items() if not wanted]
    while free:
        done = free.pop()
        del missing[done]
        for name in waiting_for.get(done, ()):
            missing[name].discard(done)
            if not missing[name]:
                free.append(name)
    return frozenset(missing)

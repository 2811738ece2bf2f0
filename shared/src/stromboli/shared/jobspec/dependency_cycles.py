"""Who waits for whom: the one meaning of a cycle for those that refuse it and those that wait."""

from collections.abc import Collection, Mapping


def members_of_cycles(needs: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Names that wait for themselves, in the end, or for such a name. O(names + needs).

    ``needs``: name -> names that come first; names that are not keys are left out of account.
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

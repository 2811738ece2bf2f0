"""Who waits for whom: the one meaning of a cycle for those that refuse it and those that wait."""

from collections.abc import Collection, Mapping


def in_a_cycle(needs: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Names that wait for themselves, in the end, or for such a name. O(names + needs) rounds.

    ``needs``: name -> names that come first; names that are not keys are left out of account.
    """
    waiting = {name: {it for it in wanted if it in needs} for name, wanted in needs.items()}
    while free := {name for name, wanted in waiting.items() if not wanted}:
        waiting = {name: wanted - free for name, wanted in waiting.items() if name not in free}
    return frozenset(waiting)

"""Where nodes lie on the network: HyperNodes as a tree (spec/topology 4).

Domains are listed in preorder, the root first, so that all below one follow it. A mistake never
stops the others, and never brings nodes together: what two HyperNodes claim of which neither is
below the other belongs to what holds both; a HyperNode that names one of its own tier or a higher
one (a cycle always does) does not get it. Each is complained of.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stromboli.shared.api import core, topology

ROOT = "<cluster-top-hypernode>"
"""Name of the root, which owns every node, as the field's scheduler calls it."""
ROOT_INDEX = 0

Labels = Mapping[str, str]


class Layout(NamedTuple):
    """``names``, ``tiers``, ``parents``: by domain in preorder; the root is 0 and its own parent,
    its tier one above the highest. ``homes``: node -> the lowest domain that holds it.
    ``tier_names``: name -> tier. ``complaints``: what of the HyperNodes makes no sense."""

    names: Sequence[str]
    tiers: Sequence[int]
    parents: Sequence[int]
    homes: Mapping[str, int]
    tier_names: Mapping[str, int]
    complaints: Sequence[str]


def layout(hyper_nodes: Iterable[topology.HyperNode], nodes: Mapping[str, Labels]) -> Layout:
    """The tree of these HyperNodes over nodes with their labels.

    O(HyperNodes log HyperNodes + members), and O(nodes) for each pattern and label selector.
    """
    return _Builder({each.metadata.name: each for each in hyper_nodes}, nodes).build()


def selected(member: topology.Member, nodes: Mapping[str, Labels]) -> Collection[str]:
    """The nodes that a member of type Node means. Raises ValueError for a pattern that is none."""
    selector = member.selector
    if selector.exact_match is not None:
        name = selector.exact_match.name
        return (name,) if name in nodes else ()
    if selector.regex_match is not None:
        try:
            pattern = re.compile(selector.regex_match.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{selector.regex_match.pattern!r} is no pattern: {error}") from error
        return [name for name in nodes if pattern.search(name)]
    wanted = selector.label_match
    if wanted is None or not (wanted.match_labels or wanted.match_expressions):
        return ()  # An empty selector means no node.
    return [name for name, labels in nodes.items() if _matches(wanted, labels)]


def _matches(wanted: core.LabelSelector, labels: Labels) -> bool:
    return all(labels.get(key) == value for key, value in (wanted.match_labels or {}).items()) and (
        all(_holds(each, labels.get(each.key)) for each in wanted.match_expressions)
    )


def _holds(wanted: core.SelectorRequirement, value: str | None) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


class _Builder:
    def __init__(
        self,
        known: Mapping[str, topology.HyperNode],
        nodes: Mapping[str, Labels],
    ) -> None:
        self._known = known
        self._nodes = nodes
        self._complaints: list[str] = []
        self._parents: dict[str, str] = {}
        """HyperNode -> what holds it; not there: the root."""

    def build(self) -> Layout:
        claims: dict[str, list[str]] = {}
        own: dict[str, list[str]] = {}
        for name in sorted(self._known):
            for member in self._known[name].spec.members:
                if member.type == "HyperNode":
                    self._claim(name, member, claims)
                else:
                    for node in self._meant(name, member):
                        own.setdefault(node, []).append(name)
        # From the top, so that what holds the claimants is known when they are compared.
        for name in sorted(claims, key=lambda each: (-self._known[each].spec.tier, each)):
            holder = self._holder(claims[name], f"HyperNode {name}")
            if holder:
                self._parents[name] = holder
        names = self._preorder()
        numbers = {name: number for number, name in enumerate(names)}
        homes = dict.fromkeys(self._nodes, ROOT_INDEX)
        for node in sorted(own):
            homes[node] = numbers[self._holder(own[node], f"node {node}") or ROOT]
        tiers = [each.spec.tier for each in self._known.values()]
        return Layout(
            names,
            [max(tiers, default=0) + 1, *(self._known[name].spec.tier for name in names[1:])],
            [ROOT_INDEX, *(numbers[self._parents.get(name, ROOT)] for name in names[1:])],
            homes,
            self._tier_names(),
            self._complaints,
        )

    def _claim(self, name: str, member: topology.Member, claims: dict[str, list[str]]) -> None:
        exact = member.selector.exact_match
        if exact is None:
            self._complain(name, "members of type HyperNode are given by exactMatch")
            return
        found = self._known.get(exact.name)
        if found is None:
            self._complain(name, f"its member HyperNode {exact.name} is not there")
        elif found.spec.tier >= self._known[name].spec.tier:
            self._complain(
                name,
                f"its member HyperNode {exact.name} of tier {found.spec.tier} is not below its "
                f"own tier {self._known[name].spec.tier}: it does not count as a member",
            )
        else:
            claims.setdefault(exact.name, []).append(name)

    def _meant(self, name: str, member: topology.Member) -> Iterable[str]:
        """The nodes that a member means; none if nobody can say which."""
        try:
            return selected(member, self._nodes)
        except ValueError as error:
            self._complain(name, str(error))
            return ()

    def _holder(self, claimants: Iterable[str], what: str) -> str:
        """What a claimed thing belongs to: the lowest of its claimants, or what holds them all;
        empty for the root."""
        distinct = sorted(set(claimants))
        chains = {name: list(self._upwards(name)) for name in distinct}
        lowest = max(distinct, key=lambda name: (len(chains[name]), name))
        if all(name in chains[lowest] for name in distinct):
            return lowest
        shared = [
            name for name in chains[lowest] if all(name in chain for chain in chains.values())
        ]
        holder = shared[0] if shared else ""
        self._complaints.append(
            f"{what} is a member of {' and of '.join(distinct)}: it counts for none of them"
            + (f", only for {holder}" if holder else "")
        )
        return holder

    def _upwards(self, name: str) -> Iterator[str]:
        while name:
            yield name
            name = self._parents.get(name, "")

    def _preorder(self) -> list[str]:
        below: dict[str, list[str]] = {}
        for name in sorted(self._known, reverse=True):
            below.setdefault(self._parents.get(name, ROOT), []).append(name)
        names, ahead = [], [ROOT]
        while ahead:
            names.append(ahead.pop())
            ahead.extend(below.get(names[-1], ()))
        return names

    def _tier_names(self) -> Mapping[str, int]:
        found: dict[str, set[int]] = {}
        for each in self._known.values():
            if each.spec.tier_name:
                found.setdefault(each.spec.tier_name, set()).add(each.spec.tier)
        for name, tiers in sorted(found.items()):
            if len(tiers) > 1:
                numbers = ", ".join(str(tier) for tier in sorted(tiers))
                self._complaints.append(
                    f"tier name {name} stands for the tiers {numbers}: the lowest counts"
                )
        return {name: min(tiers) for name, tiers in found.items()}

    def _complain(self, name: str, what: str) -> None:
        self._complaints.append(f"HyperNode {name}: {what}")

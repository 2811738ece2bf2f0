"""Domains of the network: HyperNodes as a tree over a session's nodes (spec/topology 4).

Domains are numbered in preorder, so that all below a domain have the numbers from its own to its
``end``, and the nearest domain that holds several others is found from the lowest and the highest
of their numbers. Above all stands a root that owns every node.

A mistake never stops the others, and never brings nodes together: what two HyperNodes claim of
which neither is below the other belongs to what holds both; a HyperNode that names one of its own
tier or a higher one (a cycle always does) does not get it. Each is complained of.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import amounts, terms
from stromboli.shared.api import topology

ROOT = "<cluster-top-hypernode>"
"""The root's name, as the field's scheduler calls it."""
ROOT_INDEX = 0

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


class Tree:
    """Which node lies in which domains.

    ``names``, ``tiers``, ``parents``, ``ends``: by domain; the root is 0 and its own parent, its
    tier one above the highest. ``homes``: node row -> the lowest domain that holds it. ``counts``:
    nodes in each domain. ``tier_names``: name -> tier. ``complaints``: what of the HyperNodes makes
    no sense.
    """

    def __init__(
        self,
        names: Sequence[str],
        tiers: Sequence[int],
        parents: Sequence[int],
        homes: Indices,
        tier_names: Mapping[str, int],
        complaints: Sequence[str],
    ) -> None:
        self.names = names
        self.tiers = np.array(tiers, np.int64)
        self.parents = parents
        self.homes = homes
        self.tier_names = tier_names
        self.complaints = complaints
        ends = list(range(1, len(names) + 1))
        for index in range(len(names) - 1, 0, -1):
            ends[parents[index]] = max(ends[parents[index]], ends[index])
        self.ends = np.array(ends, np.intp)
        self.counts = self.sums(np.ones((1, len(homes)), np.int64))[0]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def is_flat(self) -> bool:
        """There is no HyperNode."""
        return len(self.names) == 1

    @property
    def lowest_tier(self) -> int:
        """Of all HyperNodes; the root's if there are none."""
        return int(self.tiers[1:].min()) if not self.is_flat else int(self.tiers[ROOT_INDEX])

    def mask(self, index: int) -> Mask:
        """The nodes in a domain."""
        inside: Mask = (self.homes >= index) & (self.homes < self.ends[index])
        return inside

    def is_inside(self, inner: int, outer: int) -> bool:
        """Whether a domain is the other one or below it."""
        return outer <= inner < int(self.ends[outer])

    def upwards(self, index: int) -> Iterator[int]:
        """The domain, what holds it, and so on to the root."""
        while index != ROOT_INDEX:
            yield index
            index = self.parents[index]
        yield ROOT_INDEX

    def common(self, some: Iterable[int]) -> int:
        """The lowest domain that holds all of these; at least one is given."""
        found = list(some)
        first, last = min(found), max(found)
        return next(each for each in self.upwards(first) if self.is_inside(last, each))

    def sums(self, values: amounts.Table) -> amounts.Table:
        """Sums over the nodes of each domain: ``any x nodes`` -> ``any x domains``."""
        own = np.zeros((len(values), len(self.names) + 1), np.int64)
        for line, each in zip(own, values, strict=True):
            np.add.at(line, self.homes + 1, each)
        total = np.cumsum(own, axis=1)
        summed: amounts.Table = total[:, self.ends] - total[:, :-1]
        return summed


def tree(
    hyper_nodes: Sequence[topology.HyperNode],
    rows: Mapping[str, int],
    labels: Sequence[Mapping[str, str]],
) -> Tree:
    """The tree of these HyperNodes. ``rows``: node -> its row; ``labels`` by row.

    O(HyperNodes log HyperNodes + members), and O(nodes) for each pattern and label selector.
    """
    builder = _Builder({each.metadata.name: each for each in hyper_nodes}, rows, labels)
    return builder.build()


class _Builder:
    def __init__(
        self,
        known: Mapping[str, topology.HyperNode],
        rows: Mapping[str, int],
        labels: Sequence[Mapping[str, str]],
    ) -> None:
        self._known = known
        self._rows = rows
        self._labels = labels
        self._complaints: list[str] = []
        self._parents: dict[str, str] = {}
        """HyperNode -> what holds it; not there: the root."""

    def build(self) -> Tree:
        claims: dict[str, list[str]] = {}
        own: dict[int, list[str]] = {}
        for name in sorted(self._known):
            for member in self._known[name].spec.members:
                if member.type == "HyperNode":
                    self._claim(name, member, claims)
                else:
                    for row in self._meant(name, member):
                        own.setdefault(row, []).append(name)
        # From the top, so that what holds the claimants is known when they are compared.
        for name in sorted(claims, key=lambda each: (-self._known[each].spec.tier, each)):
            holder = self._holder(claims[name], f"HyperNode {name}")
            if holder:
                self._parents[name] = holder
        names = self._preorder()
        numbers = {name: number for number, name in enumerate(names)}
        homes = np.zeros(len(self._rows), np.intp)
        nodes = {row: name for name, row in self._rows.items()}
        for row in sorted(own):
            homes[row] = numbers[self._holder(own[row], f"node {nodes[row]}") or ROOT]
        tiers = [each.spec.tier for each in self._known.values()]
        return Tree(
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

    def _meant(self, name: str, member: topology.Member) -> Iterable[int]:
        """Rows of the nodes that a member means."""
        selector = member.selector
        if selector.exact_match is not None:
            row = self._rows.get(selector.exact_match.name)
            return () if row is None else (row,)
        if selector.regex_match is not None:
            try:
                pattern = re.compile(selector.regex_match.pattern)
            except (re.error, RecursionError, OverflowError) as error:
                self._complain(name, f"{selector.regex_match.pattern!r} is no pattern: {error}")
                return ()
            return [row for node, row in self._rows.items() if pattern.search(node)]
        meant = terms.selector(selector.label_match, {})
        if meant is None or not meant.requirements:
            return ()  # An empty selector means no node.
        return [row for row, labels in enumerate(self._labels) if meant.matches(labels)]

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

"""The network topology: the tree of HyperNodes over the nodes.

Domains are listed in preorder, the root first, so that all descendants of a domain follow it. An
invalid HyperNode never affects valid ones, and never groups nodes that are apart. If two
HyperNodes have the same member and neither contains the other, the member belongs to their lowest
common ancestor. A member of the same or a higher tier, as in any cycle, is ignored. Each case is
reported as a complaint.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stromboli.shared.api import batch, label_selectors, topology
from stromboli.shared.formats import patterns

ROOT = "<cluster-top-hypernode>"
"""Name of the root domain, which contains every node; the same as Volcano's."""
ROOT_INDEX = 0
NODES_BY_NAME = 3
"""Number of nodes that a complaint lists by name; further nodes are only counted."""

NO_TIER = "hard networkTopology names neither highestTierAllowed nor highestTierName"

Labels = Mapping[str, str]


class Layout(NamedTuple):
    """``names``, ``tiers``, ``parents``: by domain in preorder; the root is 0 and its own parent,
    its tier one above the highest. ``homes``: node -> its lowest domain. ``tier_names``: name ->
    tier. ``complaints``: errors in the HyperNodes; ``about``: the same by HyperNode.
    """

    names: Sequence[str]
    tiers: Sequence[int]
    parents: Sequence[int]
    homes: Mapping[str, int]
    tier_names: Mapping[str, int]
    complaints: Sequence[str]
    about: Mapping[str, Sequence[str]]

    def counts(self) -> list[int]:
        """The number of nodes of each domain, including its descendants."""
        node_counts = [0] * len(self.names)
        for home in self.homes.values():
            node_counts[home] += 1
        for number in range(len(self.names) - 1, ROOT_INDEX, -1):
            node_counts[self.parents[number]] += node_counts[number]
        return node_counts


class Tiers(NamedTuple):
    """The tiers of the existing HyperNodes. ``lowest``: the lowest tier, None without HyperNodes.
    ``names``: tier name -> the lowest tier with that name.
    """

    lowest: int | None
    names: Mapping[str, int]


def tiers(hyper_nodes: Iterable[topology.HyperNode]) -> Tiers:
    """The tiers of these HyperNodes."""
    names: dict[str, int] = {}
    hyper_node_specs = [each.spec for each in hyper_nodes]
    for spec in hyper_node_specs:
        if spec.tier_name:
            names[spec.tier_name] = min(names.get(spec.tier_name, spec.tier), spec.tier)
    return Tiers(min((spec.tier for spec in hyper_node_specs), default=None), names)


def highest_tier(network_topology: batch.NetworkTopology, known: Tiers) -> int:
    """The highest tier that a hard constraint allows its pods to span.

    Raises ValueError with the reason if the constraint cannot be satisfied: ignoring it could
    scatter a gang whose pods must be close to each other.
    """
    if known.lowest is None:
        raise ValueError("hard networkTopology, but the cluster has no HyperNodes")
    if network_topology.highest_tier_allowed is not None:
        if network_topology.highest_tier_allowed < known.lowest:
            raise ValueError(
                f"highestTierAllowed {network_topology.highest_tier_allowed}: "
                f"the lowest tier of the HyperNodes is {known.lowest}"
            )
        return network_topology.highest_tier_allowed
    if not network_topology.highest_tier_name:
        raise ValueError(NO_TIER)
    if network_topology.highest_tier_name not in known.names:
        listed = ", ".join(sorted(known.names)) or "no HyperNode has a tier name"
        raise ValueError(
            f"highestTierName {network_topology.highest_tier_name}: no HyperNode has this tier "
            f"name ({listed})"
        )
    return known.names[network_topology.highest_tier_name]


def layout(hyper_nodes: Iterable[topology.HyperNode], nodes: Mapping[str, Labels]) -> Layout:
    """The tree that these HyperNodes form over the nodes. ``nodes``: node -> its labels.

    O(HyperNodes log HyperNodes + members), and O(nodes) for each pattern and label selector.
    """
    return _Builder({each.metadata.name: each for each in hyper_nodes}, nodes).build()


def selected(member: topology.Member, nodes: Mapping[str, Labels]) -> Collection[str]:
    """The nodes that a member of type Node selects. Raises ValueError for an invalid pattern."""
    selector = member.selector
    if selector.exact_match is not None:
        name = selector.exact_match.name
        return (name,) if name in nodes else ()
    if selector.regex_match is not None:
        try:
            pattern = patterns.compile_pattern(selector.regex_match.pattern)
        except ValueError as error:
            raise ValueError(f"regexMatch {error}") from error
        return [name for name in nodes if pattern.search(name)]
    wanted = selector.label_match
    if wanted is None or not (wanted.match_labels or wanted.match_expressions):
        return ()  # An empty selector means no node.
    return [name for name, labels in nodes.items() if label_selectors.matches(wanted, labels)]


class _Builder:
    def __init__(
        self,
        known: Mapping[str, topology.HyperNode],
        nodes: Mapping[str, Labels],
    ) -> None:
        self._known = known
        self._nodes = nodes
        self._complaints: list[str] = []
        self._about: dict[str, list[str]] = {}
        self._parents: dict[str, str] = {}
        """HyperNode -> its parent; the root if absent."""

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
        # Top-down, so that the ancestors of the claimants are known when they are compared.
        for name in sorted(claims, key=lambda each: (-self._known[each].spec.tier, each)):
            claimants = tuple(sorted(set(claims[name])))
            holder = self._holder(claimants)
            if holder not in claimants:
                self._complain_of_claims(f"HyperNode {name} is a member", claimants, holder, [name])
            if holder:
                self._parents[name] = holder
        self._complain_of_tier_names()
        names = self._preorder()
        numbers = {name: number for number, name in enumerate(names)}
        homes = dict.fromkeys(self._nodes, ROOT_INDEX)
        together: dict[tuple[str, ...], list[str]] = {}
        for node in sorted(own):
            together.setdefault(tuple(sorted(set(own[node]))), []).append(node)
        for claimants, claimed in together.items():
            holder = self._holder(claimants)
            if holder not in claimants:
                self._complain_of_claims(_members(claimed), claimants, holder)
            homes.update(dict.fromkeys(claimed, numbers[holder or ROOT]))
        numbered = [each.spec.tier for each in self._known.values()]
        return Layout(
            names,
            [max(numbered, default=0) + 1, *(self._known[name].spec.tier for name in names[1:])],
            [ROOT_INDEX, *(numbers[self._parents.get(name, ROOT)] for name in names[1:])],
            homes,
            tiers(self._known.values()).names,
            self._complaints,
            self._about,
        )

    def _claim(self, name: str, member: topology.Member, claims: dict[str, list[str]]) -> None:
        exact = member.selector.exact_match
        if exact is None:
            self._complain(name, "a member of type HyperNode needs exactMatch")
            return
        hyper_node = self._known.get(exact.name)
        if hyper_node is None:
            self._complain(name, f"its member HyperNode {exact.name} does not exist")
        elif hyper_node.spec.tier >= self._known[name].spec.tier:
            self._complain(
                name,
                f"its member HyperNode {exact.name} of tier {hyper_node.spec.tier} is not below "
                f"its own tier {self._known[name].spec.tier}: the member is ignored",
            )
        else:
            claims.setdefault(exact.name, []).append(name)

    def _meant(self, name: str, member: topology.Member) -> Iterable[str]:
        """The nodes that a member selects; empty if the selector is invalid."""
        try:
            return selected(member, self._nodes)
        except ValueError as error:
            self._complain(name, str(error))
            return ()

    def _holder(self, claimants: Sequence[str]) -> str:
        """The HyperNode that a claimed member belongs to: the lowest claimant if all others contain
        it, else their lowest common ancestor; empty for the root.
        """
        if len(claimants) == 1:
            return claimants[0]
        chains = {name: list(self._upwards(name)) for name in claimants}
        lowest = max(claimants, key=lambda name: (len(chains[name]), name))
        if all(name in chains[lowest] for name in claimants):
            return lowest
        shared = [
            name for name in chains[lowest] if all(name in chain for chain in chains.values())
        ]
        return shared[0] if shared else ""

    def _complain_of_claims(
        self, what: str, claimants: Sequence[str], holder: str, others: Sequence[str] = ()
    ) -> None:
        text = f"{what} of {' and of '.join(claimants)}: it belongs to none of them"
        text += f", only to {holder}" if holder else ""
        self._complaints.append(text)
        for name in (*claimants, *others):
            self._about.setdefault(name, []).append(text)

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

    def _complain_of_tier_names(self) -> None:
        tiers_by_name: dict[str, set[int]] = {}
        for each in self._known.values():
            if each.spec.tier_name:
                tiers_by_name.setdefault(each.spec.tier_name, set()).add(each.spec.tier)
        for name, meant in sorted(tiers_by_name.items()):
            if len(meant) > 1:
                numbers = ", ".join(str(tier) for tier in sorted(meant))
                text = f"several tiers ({numbers}) have the tier name {name}: the lowest is used"
                self._complaints.append(text)

    def _complain(self, name: str, what: str) -> None:
        self._complaints.append(f"HyperNode {name}: {what}")
        self._about.setdefault(name, []).append(what)


def _members(nodes: Sequence[str]) -> str:
    """The beginning of a sentence that lists members."""
    if len(nodes) == 1:
        return f"node {nodes[0]} is a member"
    more = f" and {len(nodes) - NODES_BY_NAME} more" if len(nodes) > NODES_BY_NAME else ""
    return f"each of the nodes {', '.join(nodes[:NODES_BY_NAME])}{more} is a member"

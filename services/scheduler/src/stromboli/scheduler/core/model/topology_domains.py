"""Topology domains of the network over the rows of a session's nodes.

Domains are numbered in preorder: a domain and its descendants have the numbers from its own up to,
but not including, its ``end``. The lowest common domain of several domains is computed from the
lowest and highest of their numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import resource_vectors
from stromboli.shared import network_topology
from stromboli.shared.api import topology

ROOT = network_topology.ROOT
ROOT_INDEX = network_topology.ROOT_INDEX

TIER_LIMIT = 2**61
"""Higher tiers are clamped to this one, so that the difference of two tiers fits 64 bits."""

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


class TopologyTree:
    """The tree of topology domains and the domain of each node.

    By domain: ``names``, ``tiers``, ``parents``, ``ends``. The root has the number 0, is its own
    parent, and has a tier one above the highest. ``homes``: row -> the lowest domain that contains
    the node. ``counts``: nodes in each domain. ``tier_names``: name -> tier. ``complaints``:
    problems of the HyperNodes.
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
        self.tiers = np.array([max(-TIER_LIMIT, min(TIER_LIMIT, each)) for each in tiers], np.int64)
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
        """Whether there is no HyperNode."""
        return len(self.names) == 1

    @property
    def lowest_tier(self) -> int:
        """The lowest tier of all HyperNodes; the root's if there are none."""
        return int(self.tiers[1:].min()) if not self.is_flat else int(self.tiers[ROOT_INDEX])

    @property
    def known_tiers(self) -> network_topology.Tiers:
        """The tiers of all HyperNodes."""
        return network_topology.Tiers(None if self.is_flat else self.lowest_tier, self.tier_names)

    def mask(self, index: int) -> Mask:
        """The nodes in a domain."""
        inside: Mask = (self.homes >= index) & (self.homes < self.ends[index])
        return inside

    def is_inside(self, inner: int, outer: int) -> bool:
        """Whether ``inner`` is ``outer`` or a descendant of it."""
        return outer <= inner < int(self.ends[outer])

    def path_to_root(self, index: int) -> Iterator[int]:
        """The domain and its ancestors up to the root."""
        while index != ROOT_INDEX:
            yield index
            index = self.parents[index]
        yield ROOT_INDEX

    def common(self, some: Iterable[int]) -> int:
        """The lowest domain that contains all of these (one or more)."""
        domains = list(some)
        first, last = min(domains), max(domains)
        return next(each for each in self.path_to_root(first) if self.is_inside(last, each))

    def sums(self, values: resource_vectors.Table) -> resource_vectors.Table:
        """Sums over the nodes of each domain: ``any x nodes`` -> ``any x domains``."""
        own = np.zeros((len(values), len(self.names) + 1), np.int64)
        for line, each in zip(own, values, strict=True):
            np.add.at(line, self.homes + 1, each)
        total = np.cumsum(own, axis=1)
        summed: resource_vectors.Table = total[:, self.ends] - total[:, :-1]
        return summed

    def large_sums(self, values: resource_vectors.Table) -> npt.NDArray[np.float64]:
        """Like ``sums``, for amounts whose sum may exceed 64 bits; exact to 53 bits."""
        high, low = self.sums(values >> 32), self.sums(values & 0xFFFF_FFFF)
        summed: npt.NDArray[np.float64] = high * np.float64(2**32) + low
        return summed


def build_tree(
    hyper_nodes: Sequence[topology.HyperNode],
    rows: Mapping[str, int],
    labels: Sequence[Mapping[str, str]],
) -> TopologyTree:
    """Build the tree. ``rows``: node -> row; ``labels`` by row."""
    hyper_node_layout = network_topology.layout(
        hyper_nodes, {name: labels[row] for name, row in rows.items()}
    )
    homes = np.zeros(len(rows), np.intp)
    for name, row in rows.items():
        homes[row] = hyper_node_layout.homes[name]
    return TopologyTree(
        hyper_node_layout.names,
        hyper_node_layout.tiers,
        hyper_node_layout.parents,
        homes,
        hyper_node_layout.tier_names,
        hyper_node_layout.complaints,
    )

"""The policy ``links`` of ``deviceshare``: cards of one container are linked well.

A share of a card comes from one that others use already, the fullest first, so that whole cards
stay. Several cards, and the first share of a whole one, are chosen as ``core.gpu_links`` does: the
best linked set, of equals the one that leaves the best linked rest, on the fewest NUMA nodes. What
a choice is worth is how near it comes to the best that these cards could ever give.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stromboli.scheduler.core.numa import gpu_interconnect, nodes, reports
from stromboli.scheduler.core.plugins.deviceshare import cards

BEST = 100.0


class Links(NamedTuple):
    """How a node's cards are linked: ``pairs`` by their places, and each one's NUMA node."""

    pairs: gpu_interconnect.Scores
    cells: tuple[int, ...]


def of(some: Sequence[cards.Card], told: nodes.Known | None) -> Links:
    """The links of these cards as the node's agent tells them; none of those it does not know."""
    pairs = np.zeros((len(some), len(some)), np.int64)
    cells = [-1] * len(some)
    if isinstance(told, nodes.NodeHardware) and reports.GPU in told.ids:
        pool = told.hardware.pools[reports.GPU]
        places = {name: place for place, name in enumerate(told.ids[reports.GPU])}
        known = [(at, places[card.uuid]) for at, card in enumerate(some) if card.uuid in places]
        for at, place in known:
            cells[at] = pool.cells[place]
            for other, there in known if pool.pairs else ():
                pairs[at, other] = pool.pairs[place][there]
    return Links(pairs, tuple(cells))


def fit(
    some: Sequence[cards.Card], wish: cards.GpuRequest, owner: cards.Owner, links: Links
) -> tuple[cards.Given, float] | None:
    """As ``cards.fit``, with the cards in the order of their places."""
    given: list[tuple[cards.Share, ...]] = []
    worth: list[float] = []
    for want in wish.containers:
        can = {
            at: share
            for at, card in enumerate(some)
            if want.number and wish.allows(card) and (share := card.share(want, wish, owner))
        }
        begun = [at for at in can if some[at].users]
        chosen: tuple[int, ...] | None
        if want.number == 1 and begun:
            chosen = (max(begun, key=lambda at: (some[at].used_mib, -at)),)
        else:
            chosen = gpu_interconnect.best(links.pairs, can, want.number, links.cells)
        if chosen is None:
            return None
        for at in chosen:
            some[at].put(owner, can[at])
        given.append(tuple(can[at] for at in chosen))
        if want.number:
            worth.append(_worth(some, links, chosen))
    return tuple(given), sum(worth) / len(worth)


def _worth(some: Sequence[cards.Card], links: Links, chosen: tuple[int, ...]) -> float:
    if len(chosen) == 1:
        return BEST if len(some[chosen[0]].users) > 1 else 0.0
    ideal = gpu_interconnect.best(links.pairs, range(len(some)), len(chosen), links.cells) or chosen
    most = int(links.pairs[np.ix_(ideal, ideal)].sum())
    return BEST * int(links.pairs[np.ix_(chosen, chosen)].sum()) / most if most else 0.0

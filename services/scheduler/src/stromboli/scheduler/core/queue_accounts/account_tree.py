"""The books of queues that form a tree: limits go down it, holdings are summed up it."""

from collections.abc import Mapping

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import resource_vectors
from stromboli.scheduler.core.queue_accounts import accounts, hierarchy, shares


def opened(within: session.Session, tree: hierarchy.Hierarchy) -> dict[str, accounts.Account]:
    """An account for every queue in the tree, whether it has jobs or not."""
    limitless = [resource_vectors.INFINITE] * len(within.resources.names)
    books = {
        name: accounts.opened(within, within.queues[name], limitless)
        for name in tree.downward()
        if name in within.queues
    }
    for name in reversed(tree.downward()):
        if name != hierarchy.ROOT and tree.ancestors(name)[0] in books:
            _add_up(books[tree.ancestors(name)[0]], books[name])
    root = books.get(hierarchy.ROOT)
    if root is not None:
        root.real_capability = list(root.capability)
    for name in tree.downward():
        _limit_children(name, tree, books, limitless)
    return books


def _add_up(parent: accounts.Account, child: accounts.Account) -> None:
    parent.allocated = shares.plus(parent.allocated, child.allocated)
    parent.request = shares.plus(parent.request, child.request)
    parent.inqueue = shares.plus(parent.inqueue, child.inqueue)
    parent.elastic = shares.plus(parent.elastic, child.elastic)


def _limit_children(
    name: str,
    tree: hierarchy.Hierarchy,
    books: Mapping[str, accounts.Account],
    limitless: shares.Row,
) -> None:
    """A child can reach what its parent can, less what is guaranteed to its siblings."""
    parent = books.get(name)
    children = [books[child] for child in tree.children[name]]
    guaranteed = [0] * len(limitless)
    for child in children:
        guaranteed = shares.plus(guaranteed, child.guarantee)
    capability = parent.capability if parent else limitless
    free = shares.less(parent.real_capability if parent else limitless, guaranteed)
    for child in children:
        child.capability = [
            above if own >= resource_vectors.INFINITE else own
            for own, above in zip(child.capability, capability, strict=True)
        ]
        child.real_capability = shares.lowest(shares.plus(free, child.guarantee), child.capability)

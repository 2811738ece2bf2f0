"""Hierarchical dominant resource fairness: queues are compared along their paths.

Leaves are jobs, inner nodes are the components of the queues' paths. The share of an inner node is
computed from the sum of its children, with each unsaturated child scaled down to the smallest share
among them: the surplus of one child must not raise the share of the whole branch. A node is
saturated once it cannot use more: its jobs have all that they request, or a resource that they
request is exhausted.

Source: Bhattacharya et al., Hierarchical Scheduling for Diverse Datacenter Workloads, SoCC 2013.
"""

import contextlib
from collections.abc import Iterator, Sequence

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.queue_quota import shares


class Branch:
    """A node of the tree. ``allocated``: scaled amounts in an inner node, exact ones in a leaf."""

    __slots__ = ("allocated", "children", "is_saturated", "parent", "request", "share", "weight")

    def __init__(self, parent: "Branch | None", weight: float, width: int) -> None:
        self.parent = parent
        self.weight = weight
        self.children: dict[str, Branch] = {}
        self.allocated: Sequence[float] = [0] * width
        self.request: Sequence[int] = ()
        """The total request of a leaf's job."""
        self.share = 0.0
        self.is_saturated = False


class Tree:
    """The paths of queues. A comparison first recomputes what has changed.

    A change costs O(path) at the next comparison, or O(tree) if a resource is exhausted or becomes
    available again.
    """

    def __init__(self, ssn: session.Session) -> None:
        self._total: shares.Row = ssn.total.tolist()
        self._root = Branch(None, 1.0, len(self._total))
        self._leaves: dict[str, Branch] = {}
        self._taken = [0] * len(self._total)
        # In the order of keys: sums of floating-point shares depend on the order.
        for _, job in sorted(ssn.jobs.items()):
            leaf = self._leaf(job, ssn.queue_of(job))
            allocated: shares.Row = job.allocated.tolist()
            leaf.allocated = allocated
            leaf.request = job.total_request.tolist()
            self._leaves[job.key] = leaf
            self._taken = shares.sum_of(self._taken, allocated)
        self._is_demanding: list[bool] = []
        self._dirty: dict[Branch, None] = {}

    def charge(self, job: entities.Job, demand: shares.Demand, times: int = 1) -> None:
        """Charge the demand to the job; ``times`` -1 gives it back."""
        leaf = self._leaves[job.key]
        row = [int(amount) for amount in leaf.allocated]
        shares.add(row, demand, times)
        leaf.allocated = row
        shares.add(self._taken, demand, times)
        self._dirty[leaf] = None

    @contextlib.contextmanager
    def charged(self, job: entities.Job, demand: shares.Demand, times: int = 1) -> Iterator[None]:
        """Charge the job for the duration of the context."""
        self.charge(job, demand, times)
        try:
            yield
        finally:
            self.charge(job, demand, -times)

    def compare(self, left: entities.Queue, right: entities.Queue) -> int:
        """Compare two queues level by level along their paths, until one level decides: unsaturated
        before saturated, then the smaller weighted share. Negative if left comes first; a queue
        without a path equals all others."""
        self._refresh()
        for first, second in zip(self._branches_of(left), self._branches_of(right), strict=False):
            if first.is_saturated != second.is_saturated:
                return 1 if first.is_saturated else -1
            own, other = first.share / first.weight, second.share / second.weight
            if own != other:
                return -1 if own < other else 1
        return 0

    def _branches_of(self, queue: entities.Queue) -> Iterator[Branch]:
        """Return the existing branches on the queue's path."""
        branch: Branch | None = self._root
        for component in [*_path(queue), ""]:
            if branch is None:
                return
            yield branch
            branch = branch.children.get(component)

    def _leaf(self, job: entities.Job, queue: entities.Queue) -> Branch:
        branch = self._root
        width = len(self._total)
        weights = queue.hierarchy_weights.split("/")[1:]
        for level, component in enumerate(_path(queue)):
            if component not in branch.children:
                weight = _weight(weights[level]) if level < len(weights) else 1.0
                branch.children[component] = Branch(branch, weight, width)
            branch = branch.children[component]
        leaf = branch.children[f"/{job.key}"] = Branch(branch, 1.0, width)
        return leaf

    def _refresh(self) -> None:
        is_demanding = [
            allocated < total for allocated, total in zip(self._taken, self._total, strict=True)
        ]
        if is_demanding != self._is_demanding:
            self._is_demanding = is_demanding
            self._refresh_below(self._root)
        else:
            for leaf in self._dirty:
                branch: Branch | None = leaf
                while branch is not None:
                    self._update_branch(branch)
                    branch = branch.parent
        self._dirty.clear()

    def _refresh_below(self, branch: Branch) -> None:
        for child in branch.children.values():
            self._refresh_below(child)
        self._update_branch(branch)

    def _update_branch(self, branch: Branch) -> None:
        """Update the branch's allocation and saturation from its updated children."""
        if branch.request:
            branch.share = _share(branch.allocated, self._total)
            branch.is_saturated = self._is_leaf_saturated(branch)
            return
        holding = [child for child in branch.children.values() if child.share]
        least = min([1.0, *(child.share for child in holding if not child.is_saturated)])
        total = [0.0] * len(self._total)
        for child in holding:
            part = 1.0 if child.is_saturated else least / child.share
            for column, amount in enumerate(child.allocated):
                total[column] += amount * part
        branch.allocated = total
        branch.share = _share(total, self._total)
        branch.is_saturated = all(child.is_saturated for child in branch.children.values())

    def _is_leaf_saturated(self, leaf: Branch) -> bool:
        return any(
            wanted > 0 and (usage >= wanted or not self._is_demanding[column])
            for column, (usage, wanted) in enumerate(zip(leaf.allocated, leaf.request, strict=True))
            if usage > 0
        )


def _share(used: Sequence[float], total: Sequence[int]) -> float:
    return max(
        (amount / top for amount, top in zip(used, total, strict=True) if top > 0), default=0
    )


def _path(queue: entities.Queue) -> list[str]:
    """Return the path below the root; none for a queue outside the hierarchy."""
    return queue.hierarchy.split("/")[1:]


def _weight(text: str) -> float:
    """Return the weight; 1 if it is no number or below 1."""
    try:
        return max(float(text), 1.0)
    except ValueError:
        return 1.0

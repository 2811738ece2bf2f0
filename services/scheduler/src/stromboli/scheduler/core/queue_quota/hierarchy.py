"""The tree of queues by ``spec.parent``.

The limits of a queue that is not connected to the root cannot be enforced, so its jobs and those of
its descendants are not scheduled. Other queues are not affected.
"""

from collections.abc import Mapping

from stromboli.scheduler.core.model import entities

ROOT = "root"
"""The root queue, the parent of queues without ``spec.parent``. Without a Queue of this name, no
limit applies to the cluster as a whole."""


class Hierarchy:
    """Queues as a tree. ``problems``: queue name -> reason why it is not in the tree."""

    def __init__(self, queues: Mapping[str, entities.Queue]) -> None:
        self._queues = queues
        self._parents = {
            name: queue.parent or ROOT for name, queue in queues.items() if name != ROOT
        }
        self.problems: dict[str, str] = {}
        self._ways: dict[str, list[str]] = {}
        for name in queues:
            way, problem = self._path_to_root(name)
            if problem:
                self.problems[name] = problem
            else:
                self._ways[name] = way
        self.children: dict[str, list[str]] = {ROOT: []}
        for name in self._ways:
            self.children.setdefault(name, [])
            if name != ROOT:
                self.children.setdefault(self._parents[name], []).append(name)

    def is_leaf(self, name: str) -> bool:
        """Return whether the queue has no children."""
        return not self.children[name]

    def ancestors(self, name: str) -> list[str]:
        """Return the ancestors, from the parent up to the root, which is always included."""
        return self._ways[name]

    def top_down(self) -> list[str]:
        """Return the root and all queues of the tree, parents before children."""
        order = [ROOT]
        for name in order:
            order.extend(self.children[name])
        return order

    def diverging_ancestors(self, left: str, right: str) -> tuple[str, str]:
        """Return the two queues at which the paths from the root to both diverge.

        If one queue is an ancestor of the other, these are the ancestor itself and its child on the
        path.
        """
        first, second = self._path_from_root(left), self._path_from_root(right)
        depth = self.common_depth(left, right)
        return first[min(depth, len(first) - 1)], second[min(depth, len(second) - 1)]

    def common_depth(self, left: str, right: str) -> int:
        """Return the number of queues that the paths from the root to the two queues share, end
        points included."""
        depth = 0
        for one, other in zip(
            self._path_from_root(left), self._path_from_root(right), strict=False
        ):
            if one != other:
                break
            depth += 1
        return depth

    def _path_from_root(self, name: str) -> list[str]:
        return [*reversed(self._ways[name]), name]

    def _path_to_root(self, name: str) -> tuple[list[str], str]:
        way: list[str] = []
        below = name
        while below != ROOT:
            parent = self._parents[below]
            if parent != ROOT and parent not in self._queues:
                return way, f"the parent {parent} of queue {below} does not exist"
            if parent == name or parent in way:
                return way, f"queue {parent} is its own ancestor"
            way.append(parent)
            below = parent
        return way, ""

"""Pods without a task: objects that cannot be decoded (*lost*) and pods with an invalid request.

The resources that such a pod uses on its node are unknown, and so is whether its job is complete.
The model places no pods on the node, and freezes the job (neither schedules nor evicts it) or
reports it.
"""

import msgspec


class UnreadablePod(msgspec.Struct, frozen=True):
    """A pod that cannot be decoded. ``node`` and ``job``: as last known, empty if never known."""

    reason: str
    node: str
    job: str


class UnreadablePods:
    """Lost and invalid pods, by pod, job and node. ``lost``: pod -> what is known of it."""

    def __init__(self) -> None:
        self.lost: dict[str, UnreadablePod] = {}
        self._at: dict[str, tuple[str, str]] = {}
        """Pod -> job and node, empty if unknown."""
        self._lost_of: dict[str, set[str]] = {}
        self._invalid_of: dict[str, dict[str, str]] = {}
        self._on_node: dict[str, set[str]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def put_lost(self, key: str, pod: UnreadablePod) -> None:
        """Add a pod that cannot be decoded."""
        self.lost[key] = pod
        self._lost_of.setdefault(pod.job, set()).add(key)
        self._put(key, pod.job, pod.node)

    def put_invalid(self, key: str, problem: str, node: str, job: str) -> None:
        """Add a pod with an invalid request."""
        if job:
            self._invalid_of.setdefault(job, {})[key] = problem
        self._put(key, job, node)

    def remove(self, key: str) -> tuple[str, str]:
        """Remove a pod, if it is there. Returns its job and node; empty if there are none."""
        if key not in self._at:  # nearly always
            return "", ""
        job, node = self._at.pop(key)
        self.lost.pop(key, None)
        for groups, name in (
            (self._lost_of, job),
            (self._invalid_of, job),
            (self._on_node, node),
        ):
            discard(groups, name, key)
        return job, node

    @property
    def unplaced(self) -> tuple[str, ...]:
        """Lost pods whose node was never known: no node can be excluded for them."""
        return tuple(sorted(key for key, pod in self.lost.items() if not pod.node))

    def job_of(self, key: str) -> str:
        """The PodGroup that the pod names; empty if unknown."""
        return self._at.get(key, ("", ""))[0]

    def node_of(self, key: str) -> str:
        """The node of the pod; empty if unknown, or if the pod has ended."""
        return self._at.get(key, ("", ""))[1]

    def lost_of(self, job: str) -> list[str]:
        """Pods of the job that cannot be decoded, by name."""
        return sorted(self._lost_of.get(job, ()))

    def invalid_of(self, job: str) -> dict[str, str]:
        """Pods of the job with an invalid request -> the problem."""
        return self._invalid_of.get(job, {})

    def are_on(self, node: str) -> bool:
        """Whether such a pod is on the node."""
        return node in self._on_node

    def _put(self, key: str, job: str, node: str) -> None:
        self._at[key] = (job, node)
        if node:
            self._on_node.setdefault(node, set()).add(key)


def discard(groups: dict[str, set[str]] | dict[str, dict], name: str, key: str) -> None:  # type: ignore[type-arg]  # values of any type
    """Remove a key from the group of this name, and the group if it is empty then."""
    group = groups.get(name)
    if isinstance(group, set):
        group.discard(key)
    elif group is not None:
        group.pop(key, None)
    if group is not None and not group:
        del groups[name]

"""Nodes that take no tasks of a class for a while, because they rejected such pods.

``cache.node_rejections`` selects these nodes. The check is built into the session, in addition to
the checks of plugins, and applies to every action.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from stromboli.scheduler.core.model import entities, requirements
from stromboli.scheduler.core.placement import extension_points

REASON = "node(s) rejected such pods recently"


class NodeCooldowns:
    """Class of requirements -> nodes that may take its tasks."""

    def __init__(self, open_to: Mapping[str, extension_points.Mask] | None = None) -> None:
        self._open_to = open_to or {}

    def __bool__(self) -> bool:
        return bool(self._open_to)

    def checks(self, task: entities.Task) -> Sequence[extension_points.Check]:
        """The check for the task's class, if any node is closed to it."""
        if not self._open_to:
            return ()
        open_to = self._open_to.get(class_of(task.task_class.shape))
        if open_to is None:
            return ()
        return (extension_points.Check(REASON, extension_points.Code.UNRESOLVABLE, open_to),)


def class_of(shape: requirements.PodRequirements) -> str:
    """A digest of the fields that a kubelet checks: requests, selectors and tolerations. Pods with
    equal fields have the same digest in every process."""
    content = msgspec.json.encode(sorted(shape.request.items())) + shape.placement
    return hashlib.blake2b(content, digest_size=8).hexdigest()

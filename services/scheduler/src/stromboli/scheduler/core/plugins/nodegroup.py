"""The plugin ``nodegroup``: queues require, prefer or avoid groups of nodes.

A queue may also limit its usage in a group. Only tasks of the queue itself count, not those of its
child queues.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views, requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.queue_quota import hierarchy, shares
from stromboli.shared import decoding
from stromboli.shared.api import core, scheduling

GROUP_LABEL = "volcano.sh/nodegroup-name"
LIMITS_ANNOTATION = "volcano.sh/nodegroup-resource-limits"
_LIMITS = decoding.decoder_of(dict[str, dict[str, core.Quantity]])

REQUIRED_POINTS = 100
PREFERRED_POINTS = 50
SHUNNED_POINTS = -1

INVALID_LIMITS = "node group resource limit annotation invalid"
NO_LABEL = "node group label not found"
NO_AFFINITY = "node group affinity not specified"
NO_MEMBER = "node does not satisfy the node group affinity"
LIMIT_EXCEEDED = "node group resource limit exceeded"

_NO_TERMS = scheduling.QueueAffinity()


class Limits(msgspec.Struct, eq=False):
    """A queue's limits and usage by group. ``is_readable`` is false if the annotation cannot be
    read."""

    by_group: Mapping[str, Mapping[int, int]]
    used: dict[str, shares.Row]
    is_readable: bool = True


class Plugin:
    """Filters and scores nodes by their group and the queue of the task."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._arguments = arguments = options.typed()
        self._is_strict = arguments.boolean("strict", default=True)
        self._is_ordered = arguments.boolean("enablePreferredOrder", default=False)
        self._is_tree = options.is_enabled("enableHierarchy")
        self._demands = shares.Demands()

    def open(self, ssn: session.Session) -> None:
        """Read affinities and limits, and register."""
        self._session = ssn
        ssn.complaints.extend(self._arguments.complaints)
        queues = ssn.queues
        codes, values = ssn.nodes.labelled.label_codes(GROUP_LABEL)
        self._groups = ["", *values]
        """Group names by index. The index is the label's code plus one; 0 means no label."""
        self._group_of = np.array(codes, np.int64) + 1
        tree = hierarchy.Hierarchy(ssn.queues)
        self._affinities = {name: self._affinity(tree, queue) for name, queue in queues.items()}
        self._limits = {
            name: limits
            for name, queue in queues.items()
            if (limits := _limits(ssn, queue)) is not None
        }
        for job in ssn.jobs.values():
            if job.queue in self._limits:
                for task in job.with_status(*entities.ALLOCATED):
                    self._add_usage(task, 1)
        is_limited = any(limits.by_group for limits in self._limits.values())
        scope = extension_points.Scope.GLOBAL if is_limited else extension_points.Scope.STATIC
        ssn.add_class_key(self._queue)
        ssn.add_predicate(self._check, scope)
        ssn.add_node_order(self._score, extension_points.Scope.STATIC)
        ssn.add_event_handler(self._on_allocate, self._on_deallocate)

    def close(self, ssn: session.Session) -> None:
        """Keeps no state between sessions."""

    def _affinity(
        self, tree: hierarchy.Hierarchy, queue: entities.Queue
    ) -> scheduling.QueueAffinity:
        """Return the queue's affinity. In a tree of queues, a queue without one inherits it from
        its nearest ancestor that has one. Empty if there is none."""
        queues = self._session.queues
        above = [] if queue.name in tree.problems else tree.ancestors(queue.name)
        names = [queue.name, *(above if self._is_tree else [])]
        stated = (queues[name].object.spec.affinity for name in names if name in queues)
        return next(
            (queue_affinity for queue_affinity in stated if queue_affinity is not None), _NO_TERMS
        )

    def _queue(self, task: entities.Task) -> str:
        job = self._session.job_of(task)
        return job.queue if job else ""

    def _check(
        self, task: entities.Task, view: node_views.NodeView
    ) -> Sequence[extension_points.Check]:
        queue = self._queue(task)
        affinity = self._affinities.get(queue, _NO_TERMS)
        limits = self._limits.get(queue)
        groups = self._group_of[view.rows]
        is_labelled = groups > 0
        everywhere = np.ones(len(groups), np.bool_)
        has_affinity = affinity != _NO_TERMS
        is_welcome = np.array([_is_member(affinity, group) for group in self._groups], np.bool_)
        has_room = np.array([self._has_room(limits, group, task) for group in self._groups])
        verdicts = (
            (INVALID_LIMITS, everywhere & (limits is None or limits.is_readable)),
            (NO_LABEL, is_labelled | (not self._is_strict and not has_affinity)),
            (NO_AFFINITY, ~is_labelled | has_affinity),
            (NO_MEMBER, ~is_labelled | is_welcome[groups]),
            (LIMIT_EXCEEDED, ~is_labelled | has_room[groups]),
        )
        return [
            extension_points.Check(
                reason,
                extension_points.Code.UNRESOLVABLE,
                passed,
                is_lasting=reason != LIMIT_EXCEEDED,
            )
            for reason, passed in verdicts
        ]

    def _has_room(self, limits: Limits | None, group: str, task: entities.Task) -> bool:
        if limits is None or group not in limits.by_group:
            return True
        used = limits.used.get(group)
        return all(
            (used[column] if used else 0) + int(task.request[column]) <= limit
            for column, limit in limits.by_group[group].items()
        )

    def _score(self, task: entities.Task, view: node_views.NodeView) -> extension_points.Scores:
        affinity = self._affinities.get(self._queue(task), _NO_TERMS)
        by_group = np.array([self._points(affinity, group) for group in self._groups], np.int64)
        scores: extension_points.Scores = by_group[self._group_of[view.rows]]
        return scores

    def _points(self, affinity: scheduling.QueueAffinity, group: str) -> int:
        """Return the points in ``SCORE_UNIT``. An avoided group scores lowest, even if it is also
        preferred."""
        wanted, shunned = affinity.node_group_affinity, affinity.node_group_anti_affinity
        if group in shunned.preferred_during_scheduling_ignored_during_execution:
            return SHUNNED_POINTS * extension_points.SCORE_UNIT
        total = 0
        if group in wanted.required_during_scheduling_ignored_during_execution:
            total += REQUIRED_POINTS * extension_points.SCORE_UNIT
        liked = wanted.preferred_during_scheduling_ignored_during_execution
        if group in liked:
            place = liked.index(group) if self._is_ordered else 0
            total += (
                PREFERRED_POINTS * extension_points.SCORE_UNIT * (len(liked) - place) // len(liked)
            )
        return total

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        for task in tasks:
            self._add_usage(task, 1)

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        for task in tasks:
            self._add_usage(task, -1)

    def _add_usage(self, task: entities.Task, times: int) -> None:
        limits = self._limits.get(self._queue(task))
        row = self._session.nodes.rows.get(task.node)
        if limits is None or row is None:
            return
        group = self._groups[self._group_of[row]]
        width = len(self._session.resources.names)
        used = limits.used.setdefault(group, [0] * width)
        shares.add(used, self._demands.of(task), times)


def _is_member(affinity: scheduling.QueueAffinity, group: str) -> bool:
    """Return whether tasks of the queue may use the group.

    They may if the affinity names the group, or if the anti-affinity only prefers to avoid it. A
    required anti-affinity excludes the group.
    """
    wanted, shunned = affinity.node_group_affinity, affinity.node_group_anti_affinity
    if group in shunned.preferred_during_scheduling_ignored_during_execution:
        return True
    if group in shunned.required_during_scheduling_ignored_during_execution:
        return False
    return (
        group in wanted.required_during_scheduling_ignored_during_execution
        or group in wanted.preferred_during_scheduling_ignored_during_execution
    )


def _limits(ssn: session.Session, queue: entities.Queue) -> Limits | None:
    """Return the queue's limits by group; None if it has none."""
    text = queue.object.metadata.annotation(LIMITS_ANNOTATION)
    if not text:
        return None
    try:
        stated = decoding.decode(_LIMITS, text)
        amounts = {
            group: _columns(ssn, requirements.parse_sums(quantities, f"group {group}"))
            for group, quantities in stated.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        ssn.complaints.append(
            f"Queue {queue.name}: {LIMITS_ANNOTATION}: {error}; its tasks are not placed"
        )
        return Limits({}, {}, is_readable=False)
    return Limits(amounts, {})


def _columns(ssn: session.Session, named: Mapping[str, int]) -> dict[int, int]:
    """Return amounts by column. A resource that no node and no pod names is never exceeded."""
    known = {ssn.resources.known(name): amount for name, amount in named.items()}
    return {column: amount for column, amount in known.items() if column is not None}

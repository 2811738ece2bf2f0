"""Bundles of victims for the gang actions: groups of tasks that are evicted together.

A *safe* bundle leaves its job at or above its minimum (or the job is below it already). A *whole*
bundle ends its job: all of its tasks are evicted or none. Safe bundles come first. All tasks of a
job below its minimum are one safe bundle, and none of them is spared alone: they cannot work
without the others.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cmp_to_key

import msgspec
import numpy as np

from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage, resource_vectors, subjobs
from stromboli.scheduler.core.placement import extension_points

PREEMPT, RECLAIM = "gangpreempt", "gangreclaim"
"""Action names, as plugins receive them."""
MOST_ROUNDS = 16
"""How often plugins are called again for the bundles of one gang."""


class VictimBundle(msgspec.Struct, frozen=True, eq=False):
    """Victims of one job that are evicted together.

    ``is_inseparable``: none of them is spared alone, since their job is below its minimum or ends.
    """

    job: entities.Job
    victims: Sequence[entities.Task]
    is_safe: bool
    is_inseparable: bool

    @property
    def request(self) -> resource_vectors.Sum:
        """The sum of what the victims request."""
        return queue_usage.sum_of_requests(self.victims, len(self.victims[0].request))


def make_bundles(
    ssn: session.Session,
    action: str,
    preemptor: entities.Job,
    candidates: Iterable[entities.Task],
    need: resource_vectors.Sum,
    helps: extension_points.Mask,
    *,
    whole_allowed: bool,
) -> list[VictimBundle]:
    """Return the bundles that plugins allow, in the order of eviction.

    ``helps``: nodes that can take some of the preemptor's tasks. A job gives up surplus tasks on
    these nodes first.
    """
    rows = ssn.nodes.rows
    by_job: dict[str, list[entities.Task]] = {}
    for task in candidates:
        by_job.setdefault(task.job, []).append(task)
    bundles = [
        bundle
        for key in sorted(by_job)
        for bundle in _split_job(
            ssn.jobs[key], by_job[key], lambda task: bool(helps[rows[task.node]])
        )
        if bundle.is_safe or (whole_allowed and not _starts_in_session(ssn, bundle.job))
    ]
    # Stable sorts, the least important first.
    bundles.sort(key=lambda bundle: (bundle.job.uid, bundle.victims[0].uid))
    bundles.sort(key=lambda bundle: -_benefit_cost_ratio(bundle, need))
    bundles.sort(key=cmp_to_key(_job_order(ssn, action, preemptor)))
    bundles.sort(key=lambda bundle: not bundle.is_safe)
    return _filtered_by_plugins(ssn, action, preemptor, bundles)


def _starts_in_session(ssn: session.Session, job: entities.Job) -> bool:
    """Return whether this session binds pods of the job.

    These pods cannot be evicted yet. If the rest of the job were evicted, they would occupy their
    nodes without being able to work.
    """
    binding = job.with_status(entities.Status.BINDING)
    return any(task.key in ssn.decisions.binds for task in binding)


def _split_job(
    job: entities.Job, tasks: Iterable[entities.Task], helps: Callable[[entities.Task], bool]
) -> list[VictimBundle]:
    ordered = sorted(tasks, key=lambda task: (not helps(task), task.priority, task.uid))
    if job.ready < job.min_available:
        return [VictimBundle(job, ordered, is_safe=True, is_inseparable=True)]
    surplus = job.ready - job.min_available
    ready = Counter(task.role for task in job.with_status(*entities.READY))
    of_role = {role: ready[role] - least for role, least in job.role_minimums}
    groups = _Groups(job)
    safe: list[entities.Task] = []
    others: list[entities.Task] = []
    for task in ordered:
        if len(safe) < surplus and of_role.get(task.role, 1) > 0 and groups.can_spare(task):
            groups.count_evicted(task)
            safe.append(task)
            if task.role in of_role:
                of_role[task.role] -= 1
        else:
            others.append(task)
    parts = [
        VictimBundle(job, safe, is_safe=True, is_inseparable=False),
        VictimBundle(job, others, is_safe=False, is_inseparable=True),
    ]
    return [part for part in parts if part.victims]


class _Groups:
    """Counts what the subgroups of a job can give up: tasks above a subgroup's minimum, and
    complete subgroups above the number that their policy needs."""

    def __init__(self, job: entities.Job) -> None:
        self._job = job
        self._remaining = {
            key: subjobs.count(subjob, subjobs.ALLOCATED_STATUSES)
            for key, subjob in job.subjobs.items()
        }

    def can_spare(self, task: entities.Task) -> bool:
        """Return whether enough subgroups stay complete without the task."""
        least = self._job.sub_group_minimums
        subjob = self._job.subjobs[task.subjob]
        if not least.get(subjob.policy) or self._remaining[task.subjob] != subjob.min_available:
            return True
        whole = sum(
            self._remaining[key] >= each.min_available
            for key, each in self._job.subjobs.items()
            if each.policy == subjob.policy
        )
        return whole > least[subjob.policy]

    def count_evicted(self, task: entities.Task) -> None:
        """Count the task as evicted."""
        self._remaining[task.subjob] -= 1


def _filtered_by_plugins(
    ssn: session.Session,
    action: str,
    preemptor: entities.Job,
    bundles: Sequence[VictimBundle],
) -> list[VictimBundle]:
    """Return the bundles with the victims that plugins allow, in the order given.

    Plugins are called with the victims of all bundles together: two bundles that a queue could lose
    one at a time may together take its guarantee. A safe bundle may shrink; a whole one is kept or
    dropped. A whole bundle that is allowed only in part uses up quota of the bundles after it, so
    plugins are called again without it, at most ``MOST_ROUNDS`` times. Where hundreds of jobs each
    hold a little more than a queue may lose, later bundles that it could lose are therefore not
    found. Cost: O(victims) for each round, one round unless a bundle is allowed in part.
    """

    def judged(offered: Sequence[VictimBundle]) -> list[tuple[VictimBundle, list[entities.Task]]]:
        victims = [victim for bundle in offered for victim in bundle.victims]
        allowed = {task.key for task in ssn.unified_evictable(action, preemptor, victims)}
        return [(each, [it for it in each.victims if it.key in allowed]) for each in offered]

    left = judged(bundles)
    for _ in range(MOST_ROUNDS):
        usable = [each for each, agreed in left if not agreed or _is_usable(each, agreed)]
        if len(usable) == len(left):
            break
        left = judged(usable)
    return [
        msgspec.structs.replace(each, victims=agreed)
        for each, agreed in left
        if agreed and _is_usable(each, agreed)
    ]


def _is_usable(bundle: VictimBundle, agreed: Sequence[entities.Task]) -> bool:
    return bundle.is_safe or len(agreed) == len(bundle.victims)


def _job_order(
    ssn: session.Session, action: str, preemptor: entities.Job
) -> Callable[[VictimBundle, VictimBundle], int]:
    """Return the comparison of bundles: those of the job (``gangpreempt``) or of the queue
    (``gangreclaim``) that is served last come first."""

    def compare(left: VictimBundle, right: VictimBundle) -> int:
        if left.job is right.job:
            return 0
        if action == PREEMPT:
            return -ssn.compare_jobs(left.job, right.job)
        queues = [ssn.queue_of(job) for job in (left.job, right.job, preemptor)]
        return 0 if queues[0] is queues[1] else ssn.compare_victim_queues(*queues)

    return compare


def _benefit_cost_ratio(bundle: VictimBundle, need: resource_vectors.Sum) -> float:
    """Return how much of the need the bundle covers, relative to what its job loses; infinite for a
    safe bundle, whose job keeps its minimum."""
    if bundle.is_safe:
        return math.inf
    requested = need > 0
    brings = np.minimum(bundle.request, need)[requested] / need[requested]
    loses = bundle.job.allocated[requested] / need[requested]
    return float(brings.sum() / loses.sum()) if loses.sum() else 0.0

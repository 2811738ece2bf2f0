"""Makes room for a whole gang at once: the search of ``gangpreempt`` and ``gangreclaim``.

Bundles of victims are added, the cheapest first, until a trial places all that the gang lacks. Then
whole jobs and single victims that the result does not need are spared. Nothing is evicted unless
the gang can then start. A gang with a topology constraint gets its room in one topology domain; the
domain with the most room is tried first.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.scheduler.core.actions import (
    eviction_rules,
    topology_placement,
    victim_bundles,
    victim_search,
)
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, queue_usage, resource_vectors
from stromboli.scheduler.core.placement import extension_points


def allows_whole_jobs(ssn: session.Session, action: str) -> bool:
    """Return whether the action may end the jobs of victims. An invalid argument is added to the
    session's complaints."""
    arguments = ssn.configuration.action(action)
    allowed = arguments.boolean("allowWholeBundle", default=True)
    ssn.complaints.extend(arguments.complaints)
    return allowed


def minimum_tasks(ssn: session.Session, job: entities.Job) -> list[entities.Task]:
    """Return the tasks that the job lacks for its minimum; none if it has its minimum."""
    waiting = job.most_needed_first(eviction_rules.pending_tasks(ssn, job))
    return waiting[: max(0, job.min_available - job.ready - job.waiting)]


def make_room(
    ssn: session.Session,
    action: str,
    job: entities.Job,
    candidates: Iterable[entities.Task],
    *,
    whole_allowed: bool,
    with_surplus: bool = True,
) -> frozenset[str]:
    """Evict what the job needs and nominate its tasks, or change nothing. Returns what
    ``victim_search.commit_if_ready`` returns.

    As in Volcano, the search first plans for all pending tasks (``with_surplus``). If that fails,
    it plans for the minimum, which is what the job needs to start.
    """
    waiting = _pending_tasks(ssn, job)
    if not waiting:
        return eviction_rules.NO_JOBS
    rows = ssn.nodes.rows
    # A victim whose node is gone makes no room.
    willing = [task for task in _evictable(ssn, candidates) if task.node in rows]
    if all(task.pod.spec.preemption_policy == eviction_rules.NEVER for task in waiting):
        willing = []
    plans = [True] if with_surplus else []
    if not ssn.job_pipelined(job):
        plans.append(False)
    for surplus in plans:
        for domain in _candidate_domains(ssn, job, waiting):
            inside = ssn.topology.tree.mask(domain)
            there = [task for task in willing if inside[rows[task.node]]]
            offered = _collect_bundles(
                ssn, action, job, there, waiting, whole_allowed=whole_allowed
            )
            with ssn.topology.confined(domain):
                eviction = _sufficient_bundles(
                    ssn, action, job, waiting, offered, inside, with_surplus=surplus
                )
                if eviction is not None:
                    trial, bundles = eviction
                    ended = [each.victims for each in bundles if each.is_inseparable]
                    return victim_search.commit_if_ready(ssn, job, trial, _rules(action), ended)
    return eviction_rules.NO_JOBS


def _pending_tasks(ssn: session.Session, job: entities.Job) -> list[entities.Task]:
    """Return the tasks for which room is made."""
    waiting = [task for task in eviction_rules.pending_tasks(ssn, job) if not task.is_best_effort]
    waiting = [task for task in waiting if ssn.finder.pre_predicate(task) is None]
    if waiting and job.sub_group_minimums and ssn.job_ready(job):
        # A running gang grows by one subgroup at a time.
        groups = {task.subjob: job.subjobs[task.subjob] for task in waiting}
        first = ssn.ordered_subjobs(groups.values())[0]
        waiting = [task for task in waiting if task.subjob == first.key]
    return waiting


def _collect_bundles(
    ssn: session.Session,
    action: str,
    job: entities.Job,
    candidates: Sequence[entities.Task],
    waiting: Sequence[entities.Task],
    *,
    whole_allowed: bool,
) -> list[victim_bundles.VictimBundle]:
    need = queue_usage.sum_of_requests(waiting, len(waiting[0].request))
    helps = _helpful_nodes(ssn, waiting)
    return victim_bundles.make_bundles(
        ssn, action, job, candidates, need, helps, whole_allowed=whole_allowed
    )


def _candidate_domains(
    ssn: session.Session, job: entities.Job, waiting: Sequence[entities.Task]
) -> list[int]:
    """Return the topology domains that may take the job, the one with the most room first."""
    ranked_domains = ssn.topology.largest_domains(job)
    if len(ranked_domains) > 1:
        room = topology_placement.domain_capacity(ssn, waiting)
        ranked_domains.sort(key=lambda domain: (-room[domain], domain))
    return ranked_domains[: ssn.topology.most_evicted_in]


def _helpful_nodes(ssn: session.Session, waiting: Iterable[entities.Task]) -> extension_points.Mask:
    """Return the nodes on which evictions can make room for some of the tasks."""
    kinds = {ssn.finder.kind(task): task for task in waiting}
    masks = [ssn.finder.filter_result(task).resolvable for task in kinds.values()]
    helps: extension_points.Mask = np.any(masks, axis=0) & ssn.nodes.labelled.usable
    return helps


def _evictable(ssn: session.Session, candidates: Iterable[entities.Task]) -> list[entities.Task]:
    """Return victims whose job does not forbid eviction. A job without a setting allows it."""
    return [
        task
        for task in candidates
        if not ssn.jobs[task.job].frozen
        and (not ssn.jobs[task.job].preemptable_is_set or ssn.jobs[task.job].preemptable)
    ]


def _sufficient_bundles(
    ssn: session.Session,
    action: str,
    job: entities.Job,
    waiting: Sequence[entities.Task],
    offered: Sequence[victim_bundles.VictimBundle],
    inside: extension_points.Mask,
    *,
    with_surplus: bool,
) -> tuple[statement.Statement, list[victim_bundles.VictimBundle]] | None:
    """Apply the first bundles that make enough room. Returns the statement and the bundles.

    ``with_surplus``: there must be room for all tasks, not for the minimum alone.
    """
    lacking = len(waiting) if with_surplus else job.min_available - job.ready - job.waiting
    need = _least_demand(waiting, lacking)
    there = resource_vectors.total(np.maximum(ssn.nodes.future_idle[:, inside], 0))
    for count in range(len(offered) + 1):
        bundles = list(offered[:count])
        if bundles:
            there = there + bundles[-1].request
        # The sum over nodes rules out most numbers of bundles; only a trial proves that one
        # suffices.
        if np.all(need <= there):
            attempt = _try_bundles(ssn, job, waiting, bundles, action, with_surplus=with_surplus)
            if attempt is not None:
                return attempt, bundles
    return None


def _least_demand(waiting: Sequence[entities.Task], count: int) -> resource_vectors.Sum:
    """Return a lower bound, per resource, of what any ``max(count, 1)`` of the tasks request."""
    requests = np.sort(np.array([task.request for task in waiting]), axis=0)
    return resource_vectors.sum_of(list(requests[: max(1, count)]), requests.shape[1])


def _try_bundles(
    ssn: session.Session,
    job: entities.Job,
    waiting: Sequence[entities.Task],
    bundles: Sequence[victim_bundles.VictimBundle],
    action: str,
    *,
    with_surplus: bool,
) -> statement.Statement | None:
    """Evict all victims and nominate the gang. Returns None, with no change, if the gang cannot
    start."""
    trial = ssn.statement()
    rules = _rules(action)
    # Pods that may not preempt get free room before any eviction.
    patient = [task for task in waiting if task.pod.spec.preemption_policy == eviction_rules.NEVER]
    others = [task for task in waiting if task.pod.spec.preemption_policy != eviction_rules.NEVER]
    for task in patient:
        victim_search.nominate(ssn, task, rules, trial)
    victims = [victim for bundle in bundles for victim in bundle.victims]
    for victim in victims:
        trial.evict(victim, action)
    victim_search.place(ssn, job, others, rules, trial, with_surplus=with_surplus)
    if len(trial.operations) > len(victims) and ssn.job_pipelined(job):
        return trial
    trial.discard()
    return None


def _rules(action: str) -> victim_search.SearchRules:
    """Return search rules without further victims: the bundles are chosen already."""
    return victim_search.SearchRules(
        action, lambda task: True, lambda task: None, lambda node: True
    )

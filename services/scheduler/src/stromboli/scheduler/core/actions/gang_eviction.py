"""Making room for a whole gang at once (spec/scheduling 8.6).

Bundles of victims are added, the cheapest first, until a dry run places all that the gang lacks;
then whole jobs, and single victims of others, that turn out to be needless are spared. Nothing is
evicted for a gang that does not stand afterwards. A gang that must lie near together gets its room
in one domain of the network: those are tried in turn, the one with the most room first.
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
    """Whether the action may end a victim's job; a wrong argument is complained of."""
    given = ssn.configuration.action(action)
    allowed = given.boolean("allowWholeBundle", default=True)
    ssn.complaints.extend(given.complaints)
    return allowed


def minimum_tasks(ssn: session.Session, job: entities.Job) -> list[entities.Task]:
    """The tasks without which the job does not stand; none if it does already."""
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
) -> None:
    """Evict for the job what it takes, or nothing.

    As in Volcano, room is sought for all tasks that wait, unless told otherwise. If that cannot be
    made, it is sought for the minimum, which is what the job needs to start.
    """
    waiting = _pending_tasks(ssn, job)
    if not waiting:
        return
    rows = ssn.nodes.rows
    # One whose node is gone makes room nowhere.
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
                found = _sufficient_bundles(
                    ssn, action, job, waiting, offered, inside, with_surplus=surplus
                )
                if found is not None:
                    made, taken = found
                    ended = [each.victims for each in taken if not each.is_safe]
                    victim_search.conclude(ssn, job, made, _rules(action), ended)
                    return


def _pending_tasks(ssn: session.Session, job: entities.Job) -> list[entities.Task]:
    """The tasks for which room is to be made."""
    waiting = [task for task in eviction_rules.pending_tasks(ssn, job) if not task.is_best_effort]
    waiting = [task for task in waiting if ssn.finder.pre_predicate(task) is None]
    if waiting and job.sub_group_minimums and ssn.job_ready(job):
        # A gang that runs grows by one group at a time.
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
    """Domains that may take the job, the one with the most room for it first."""
    found = ssn.topology.widest(job)
    if len(found) > 1:
        room = topology_placement.domain_capacity(ssn, waiting)
        found.sort(key=lambda domain: (-room[domain], domain))
    return found[: ssn.topology.most_evicted_in]


def _helpful_nodes(ssn: session.Session, waiting: Iterable[entities.Task]) -> extension_points.Mask:
    """Nodes on which evictions could make room for some of the tasks."""
    kinds = {ssn.finder.kind(task): task for task in waiting}
    masks = [ssn.finder.filter_result(task).resolvable for task in kinds.values()]
    helps: extension_points.Mask = np.any(masks, axis=0) & ssn.nodes.labelled.usable
    return helps


def _evictable(ssn: session.Session, candidates: Iterable[entities.Task]) -> list[entities.Task]:
    """Victims whose job does not refuse to be evicted; one that says nothing agrees."""
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
    """The first bundles, as many as it takes, and what they make possible, applied.

    ``with_surplus``: there must be as much as all tasks ask for, not the minimum alone.
    """
    lacking = len(waiting) if with_surplus else job.min_available - job.ready - job.waiting
    need = _least_demand(waiting, lacking)
    there = resource_vectors.total(np.maximum(ssn.nodes.future_idle[:, inside], 0))
    for count in range(len(offered) + 1):
        taken = list(offered[:count])
        if taken:
            there = there + taken[-1].request
        # Adding up the nodes says quickly what cannot be; only a trial says what can.
        if np.all(need <= there):
            made = _try_bundles(ssn, job, waiting, taken, action, with_surplus=with_surplus)
            if made is not None:
                return made, taken
    return None


def _least_demand(waiting: Sequence[entities.Task], count: int) -> resource_vectors.Sum:
    """What so many of the tasks ask for at least, resource by resource; of one at least."""
    requests = np.sort(np.array([task.request for task in waiting]), axis=0)
    return resource_vectors.sum_of(list(requests[: max(1, count)]), requests.shape[1])


def _try_bundles(
    ssn: session.Session,
    job: entities.Job,
    waiting: Sequence[entities.Task],
    taken: Sequence[victim_bundles.VictimBundle],
    action: str,
    *,
    with_surplus: bool,
) -> statement.Statement | None:
    """All victims evicted and the gang nominated; None, and nothing done, if it does not stand
    then."""
    trial = ssn.statement()
    rules = _rules(action)
    # Pods that may not preempt get what is free before any eviction.
    patient = [task for task in waiting if task.pod.spec.preemption_policy == eviction_rules.NEVER]
    others = [task for task in waiting if task.pod.spec.preemption_policy != eviction_rules.NEVER]
    for task in patient:
        victim_search.nominate(ssn, task, rules, trial)
    victims = [victim for bundle in taken for victim in bundle.victims]
    for victim in victims:
        trial.evict(victim, action)
    victim_search.place(ssn, job, others, rules, trial, with_surplus=with_surplus)
    if len(trial.operations) > len(victims) and ssn.job_pipelined(job):
        return trial
    trial.discard()
    return None


def _rules(action: str) -> victim_search.SearchRules:
    """No further victims: bundles have been chosen."""
    return victim_search.SearchRules(
        action, lambda task: True, lambda task: None, lambda node: True
    )

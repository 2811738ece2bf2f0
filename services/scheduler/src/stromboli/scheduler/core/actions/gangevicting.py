"""Making room for a whole gang at once (spec/scheduling 8.6).

Bundles of victims are added, the cheapest first, until a dry run places all that the gang lacks;
then whole jobs, and single victims of others, that turn out to be needless are spared. Nothing is
evicted for a gang that does not stand afterwards. A gang that must lie near together gets its room
in one domain of the network: those are tried in turn, the one with the most room first.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.scheduler.core.actions import bundles, evicting, nearby, victim_search
from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, queue_usage, resource_vectors
from stromboli.scheduler.core.placement import extension_points


def allows_whole(within: session.Session, action: str) -> bool:
    """Whether the action may end a victim's job; a wrong argument is complained of."""
    given = within.configuration.action(action)
    allowed = given.boolean("allowWholeBundle", default=True)
    within.complaints.extend(given.complaints)
    return allowed


def least(within: session.Session, job: entities.Job) -> list[entities.Task]:
    """The tasks without which the job does not stand; none if it does already."""
    waiting = job.most_needed_first(evicting.wanting(within, job))
    return waiting[: max(0, job.min_available - job.ready - job.waiting)]


def serve(
    within: session.Session,
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
    waiting = _waiting(within, job)
    if not waiting:
        return
    rows = within.nodes.rows
    # One whose node is gone makes room nowhere.
    willing = [task for task in _willing(within, candidates) if task.node in rows]
    if all(task.pod.spec.preemption_policy == evicting.NEVER for task in waiting):
        willing = []
    plans = [True] if with_surplus else []
    if not within.job_pipelined(job):
        plans.append(False)
    for surplus in plans:
        for domain in _tried(within, job, waiting):
            inside = within.nearness.tree.mask(domain)
            there = [task for task in willing if inside[rows[task.node]]]
            offered = _offered(within, action, job, there, waiting, whole_allowed=whole_allowed)
            with within.nearness.confined(domain):
                found = _enough(within, action, job, waiting, offered, inside, with_surplus=surplus)
                if found is not None:
                    made, taken = found
                    ended = [each.victims for each in taken if not each.is_safe]
                    victim_search.conclude(within, job, made, _rules(action), ended)
                    return


def _waiting(within: session.Session, job: entities.Job) -> list[entities.Task]:
    """The tasks for which room is to be made."""
    waiting = [task for task in evicting.wanting(within, job) if not task.is_best_effort]
    waiting = [task for task in waiting if within.finder.pre_predicate(task) is None]
    if waiting and job.sub_group_minimums and within.job_ready(job):
        # A gang that runs grows by one group at a time.
        groups = {task.subjob: job.subjobs[task.subjob] for task in waiting}
        first = within.ordered_subjobs(groups.values())[0]
        waiting = [task for task in waiting if task.subjob == first.key]
    return waiting


def _offered(
    within: session.Session,
    action: str,
    job: entities.Job,
    candidates: Sequence[entities.Task],
    waiting: Sequence[entities.Task],
    *,
    whole_allowed: bool,
) -> list[bundles.Bundle]:
    need = queue_usage.together(waiting, len(waiting[0].request))
    helps = _helpful(within, waiting)
    return bundles.bundles(
        within, action, job, candidates, need, helps, whole_allowed=whole_allowed
    )


def _tried(
    within: session.Session, job: entities.Job, waiting: Sequence[entities.Task]
) -> list[int]:
    """Domains that may take the job, the one with the most room for it first."""
    found = within.nearness.widest(job)
    if len(found) > 1:
        room = nearby.room(within, waiting)
        found.sort(key=lambda domain: (-room[domain], domain))
    return found[: within.nearness.most_evicted_in]


def _helpful(within: session.Session, waiting: Iterable[entities.Task]) -> extension_points.Mask:
    """Nodes on which evictions could make room for some of the tasks."""
    kinds = {within.finder.kind(task): task for task in waiting}
    masks = [within.finder.verdict(task).resolvable for task in kinds.values()]
    helps: extension_points.Mask = np.any(masks, axis=0) & within.nodes.labelled.usable
    return helps


def _willing(within: session.Session, candidates: Iterable[entities.Task]) -> list[entities.Task]:
    """Victims whose job does not refuse to be evicted; one that says nothing agrees."""
    return [
        task
        for task in candidates
        if not within.jobs[task.job].frozen
        and (not within.jobs[task.job].preemptable_is_set or within.jobs[task.job].preemptable)
    ]


def _enough(
    within: session.Session,
    action: str,
    job: entities.Job,
    waiting: Sequence[entities.Task],
    offered: Sequence[bundles.Bundle],
    inside: extension_points.Mask,
    *,
    with_surplus: bool,
) -> tuple[statement.Statement, list[bundles.Bundle]] | None:
    """The first bundles, as many as it takes, and what they make possible, applied.

    ``with_surplus``: there must be as much as all tasks ask for, not the minimum alone.
    """
    lacking = len(waiting) if with_surplus else job.min_available - job.ready - job.waiting
    need = _least(waiting, lacking)
    there = resource_vectors.total(np.maximum(within.nodes.future_idle[:, inside], 0))
    for count in range(len(offered) + 1):
        taken = list(offered[:count])
        if taken:
            there = there + taken[-1].request
        # Adding up the nodes says quickly what cannot be; only a trial says what can.
        if np.all(need <= there):
            made = _trial(within, job, waiting, taken, action, with_surplus=with_surplus)
            if made is not None:
                return made, taken
    return None


def _least(waiting: Sequence[entities.Task], count: int) -> resource_vectors.Sum:
    """What so many of the tasks ask for at least, resource by resource; of one at least."""
    requests = np.sort(np.array([task.request for task in waiting]), axis=0)
    return resource_vectors.summed(list(requests[: max(1, count)]), requests.shape[1])


def _trial(
    within: session.Session,
    job: entities.Job,
    waiting: Sequence[entities.Task],
    taken: Sequence[bundles.Bundle],
    action: str,
    *,
    with_surplus: bool,
) -> statement.Statement | None:
    """All victims evicted and the gang nominated; None, and nothing done, if it does not stand
    then."""
    trial = within.statement()
    rules = _rules(action)
    # Pods that may not preempt get what is free before any eviction.
    patient = [task for task in waiting if task.pod.spec.preemption_policy == evicting.NEVER]
    others = [task for task in waiting if task.pod.spec.preemption_policy != evicting.NEVER]
    for task in patient:
        victim_search.nominate(within, task, rules, trial)
    victims = [victim for bundle in taken for victim in bundle.victims]
    for victim in victims:
        trial.evict(victim, action)
    victim_search.place(within, job, others, rules, trial, with_surplus=with_surplus)
    if len(trial.operations) > len(victims) and within.job_pipelined(job):
        return trial
    trial.discard()
    return None


def _rules(action: str) -> victim_search.Rules:
    """No further victims: bundles have been chosen."""
    return victim_search.Rules(action, lambda task: True, lambda task: None, lambda node: True)

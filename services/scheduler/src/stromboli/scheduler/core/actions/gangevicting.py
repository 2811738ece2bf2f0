"""Making room for a whole gang at once (spec/scheduling 8.6).

Bundles of victims are added, the cheapest first, until a dry run places all that the gang lacks;
then whole jobs, and single victims of others, that turn out to be needless are spared. Nothing is
evicted for a gang that does not stand afterwards. A gang that must lie near together gets its room
in one domain of the network: those are tried in turn, the one with the most room first.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stromboli.scheduler.core.actions import bundles, evicting, nearby
from stromboli.scheduler.core.framework import amounts, holdings, model, points, session, statement


def allows_whole(within: session.Session, action: str) -> bool:
    """Whether the action may end a victim's job; a wrong argument is complained of."""
    given = within.configuration.action(action)
    allowed = given.boolean("allowWholeBundle", default=True)
    within.complaints.extend(given.complaints)
    return allowed


def serve(
    within: session.Session,
    action: str,
    job: model.Job,
    candidates: Iterable[model.Task],
    *,
    whole_allowed: bool,
) -> None:
    """Evict for the job what it takes, or nothing."""
    waiting = [task for task in evicting.wanting(within, job) if not task.is_best_effort]
    waiting = [task for task in waiting if within.finder.pre_predicate(task) is None]
    if waiting and job.sub_group_minimums and within.job_ready(job):
        # A gang that runs grows by one group at a time.
        groups = {task.subjob: job.subjobs[task.subjob] for task in waiting}
        first = within.ordered_subjobs(groups.values())[0]
        waiting = [task for task in waiting if task.subjob == first.key]
    if not waiting:
        return
    need = holdings.together(waiting, len(waiting[0].request))
    rows = within.nodes.rows
    # One whose node is gone makes room nowhere.
    willing = [task for task in _willing(within, candidates) if task.node in rows]
    for domain in _tried(within, job, waiting):
        inside = within.nearness.tree.mask(domain)
        offered = bundles.bundles(
            within,
            action,
            job,
            [task for task in willing if inside[rows[task.node]]],
            need,
            whole_allowed=whole_allowed,
        )
        with within.nearness.confined(domain):
            found = _enough(within, action, job, waiting, offered, inside)
            if found is not None:
                made, taken = found
                evicting.settle(within, made, [each.victims for each in taken if not each.is_safe])
                made.commit()
                return


def _tried(within: session.Session, job: model.Job, waiting: Sequence[model.Task]) -> list[int]:
    """Domains that may take the job, the one with the most room for it first."""
    found = within.nearness.widest(job)
    if len(found) > 1:
        room = nearby.room(within, waiting)
        found.sort(key=lambda domain: (-room[domain], domain))
    return found[: within.nearness.most_evicted_in]


def _willing(within: session.Session, candidates: Iterable[model.Task]) -> list[model.Task]:
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
    job: model.Job,
    waiting: Sequence[model.Task],
    offered: Sequence[bundles.Bundle],
    inside: points.Mask,
) -> tuple[statement.Statement, list[bundles.Bundle]] | None:
    """The first bundles, as many as it takes, and what they make possible, applied."""
    least = waiting[: max(1, job.min_available - job.ready - job.waiting)]
    need = holdings.together(least, len(least[0].request))
    there = amounts.total(np.maximum(within.nodes.future_idle[:, inside], 0))
    taken: list[bundles.Bundle] = []
    for bundle in (None, *offered):
        if bundle is not None:
            taken.append(bundle)
            there = there + bundle.request
        # Adding up the nodes says quickly what cannot be; only a trial says what can.
        if np.all(need <= there):
            made = _trial(within, job, waiting, taken, action)
            if made is not None:
                return made, taken
    return None


def _trial(
    within: session.Session,
    job: model.Job,
    waiting: Sequence[model.Task],
    taken: Sequence[bundles.Bundle],
    reason: str,
) -> statement.Statement | None:
    """All victims evicted and the gang promised places; None, and nothing done, if it does not
    stand then."""
    trial = within.statement()
    victims = [victim for bundle in taken for victim in bundle.victims]
    for victim in victims:
        trial.evict(victim, reason)
    has_all = True
    for task in waiting:
        if not within.job_starving(job):
            break
        has_all = _promise(within, trial, task, has_victims=bool(victims)) and has_all
    if within.job_pipelined(job) and (has_all or not within.job_starving(job)):
        return trial
    trial.discard()
    return None


def _promise(
    within: session.Session, trial: statement.Statement, task: model.Task, *, has_victims: bool
) -> bool:
    room = evicting.free_room(within, task)
    if not room.any():
        return False
    idle = room & within.finder.fits_idle(task)
    node = within.finder.best(task, idle if idle.any() else room)
    trial.pipeline(task, node, eviction_occurred=has_victims)
    return True

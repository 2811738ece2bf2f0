"""Places a gang with subgroups: each subgroup as a whole or not at all.

Subgroups that the job needs for its ``subGroupPolicy`` come first. If a subgroup finds no room, its
placements are undone. The gang is bound once it is ready, which includes its subgroup policies.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, subjobs

PlaceSubgroup = Callable[[entities.SubJob, list[entities.Task], statement.Statement], None]
"""Places tasks of a subgroup until it is ready. The next task is the last of the list; tried tasks
are removed from it."""


def place(
    ssn: session.Session,
    job: entities.Job,
    tasks: list[entities.Task],
    trial: statement.Statement,
    place_group: PlaceSubgroup,
) -> None:
    """Place subgroups until the job is ready.

    ``tasks``: the next one is the last; tried tasks are removed from the list.
    """
    waiting: dict[str, list[entities.Task]] = {}
    for task in tasks:
        waiting.setdefault(task.subjob, []).append(task)
    while not _place_round(ssn, job, waiting, trial, place_group):
        pass
    still = {task.uid for left in waiting.values() for task in left}
    tasks[:] = [task for task in tasks if task.uid in still]


def _place_round(
    ssn: session.Session,
    job: entities.Job,
    waiting: dict[str, list[entities.Task]],
    trial: statement.Statement,
    place_group: PlaceSubgroup,
) -> bool:
    """Try each subgroup once, until the job is ready. Returns whether the placement is finished.

    A job may need tasks above the minimums of its subgroups, so further rounds can follow.
    """
    groups = [job.subjobs[key] for key, left in waiting.items() if left]
    for subjob in _ordered(ssn, job, groups):
        left = waiting[subjob.key]
        part = ssn.statement()
        place_group(subjob, left, part)
        is_enough = ssn.subjob_ready(job, subjob) or ssn.subjob_pipelined(job, subjob)
        if part.operations and is_enough:
            trial.merge(part)
        else:
            part.discard()
            left.clear()
        if trial.operations and ssn.job_ready(job):
            return True
    return not any(waiting.values())


def _ordered(
    ssn: session.Session, job: entities.Job, waiting: Iterable[entities.SubJob]
) -> list[entities.SubJob]:
    ordered = ssn.ordered_subjobs(waiting)
    whole = Counter(
        each.policy
        for each in job.subjobs.values()
        if subjobs.reaches(each, subjobs.ALLOCATED_STATUSES)
    )
    lacking = {policy: least - whole[policy] for policy, least in job.sub_group_minimums.items()}
    needed = []
    for each in ordered:
        is_whole = subjobs.reaches(each, subjobs.ALLOCATED_STATUSES)
        if not is_whole and lacking.get(each.policy, 0) > 0:
            lacking[each.policy] -= 1
            needed.append(each)
    return [*needed, *(each for each in ordered if each not in needed)]

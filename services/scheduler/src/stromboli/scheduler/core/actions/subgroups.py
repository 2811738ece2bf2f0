"""Placing a gang that is divided into groups: each group whole or not at all (spec 8.2).

Groups without which too few would be whole come first. Those that find no place give theirs back;
the gang is bound once it is ready, which its policies have a say in.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from stromboli.scheduler.core.framework import session, statement
from stromboli.scheduler.core.model import entities, subjobs

PlaceSubgroup = Callable[[entities.SubJob, list[entities.Task], statement.Statement], None]
"""Places tasks of a group until it is ready; the next one is the last of the list, and what was
tried is taken from it."""


def place(
    ssn: session.Session,
    job: entities.Job,
    tasks: list[entities.Task],
    trial: statement.Statement,
    place_group: PlaceSubgroup,
) -> None:
    """Place groups until the job is ready. ``tasks``: those to be tried, the next one last; what
    was tried is taken from them."""
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
    """Each group once, until the job is ready; whether there is no more to do. What groups have
    beyond their minimums may be what the job lacks, so there may be further rounds."""
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

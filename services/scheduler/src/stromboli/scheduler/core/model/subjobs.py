"""Subgroups of a gang: assigns tasks to subgroups and counts complete ones.

Subgroup policies divide a gang. A pod belongs to the first policy that selects it; pods with equal
values of the policy's labels form a subgroup. Pods that match no policy form one subgroup whose
minimum is 1. A gang without policies has one subgroup with the gang's minimum.
"""

from collections import Counter
from collections.abc import Iterable

from stromboli.scheduler.core.model import entities, pod_terms
from stromboli.shared.api import scheduling

ALLOCATED_STATUSES = entities.READY
NOMINATED_STATUSES = entities.READY | {entities.Status.PIPELINED}


def initial_subjobs(
    key: str, spec: scheduling.PodGroupSpec, tasks: dict[str, entities.Task]
) -> dict[str, entities.SubJob]:
    """The subgroups that exist before any pod. The only subgroup of a gang without policies has the
    gang's ``tasks`` as its own."""
    if spec.sub_group_policy:
        return {}
    return {key: entities.SubJob(key, spec.min_member, tasks=tasks)}


def minimums(group: scheduling.PodGroup) -> dict[str, int]:
    """Policy -> number of its subgroups that must be complete."""
    return {
        policy.name: max(policy.min_sub_groups or 0, 0) for policy in group.spec.sub_group_policy
    }


def add_task(job: entities.Job, task: entities.Task) -> None:
    """Add the task to its subgroup, which is created for its first task."""
    sub_job = _group_of(job, task)
    task.subjob = sub_job.key
    sub_job.tasks[task.uid] = task
    sub_job.priority = max(sub_job.priority, task.priority)


def remove_task(job: entities.Job, task: entities.Task) -> None:
    """Remove the task from its subgroup. A subgroup of a policy is removed with its last task."""
    sub_job = job.subjobs[task.subjob]
    sub_job.tasks.pop(task.uid, None)
    if not job.sub_group_minimums:
        return
    sub_job.priority = max((each.priority for each in sub_job.tasks.values()), default=0)
    if not sub_job.tasks:
        del job.subjobs[sub_job.key]


def are_valid(job: entities.Job) -> bool:
    """Whether every policy has enough subgroups."""
    return _are_enough(job, job.subjobs.values())


def are_whole(job: entities.Job, statuses: frozenset[entities.Status]) -> bool:
    """Whether every policy has enough subgroups with their minimum in these statuses."""
    if not job.sub_group_minimums:
        return True
    return _are_enough(job, (each for each in job.subjobs.values() if reaches(each, statuses)))


def reaches(subjob: entities.SubJob, statuses: frozenset[entities.Status]) -> bool:
    """Whether the subgroup has its minimum in these statuses; pending tasks that request nothing
    count.
    """
    return count(subjob, statuses) >= subjob.min_available


def count(subjob: entities.SubJob, statuses: frozenset[entities.Status]) -> int:
    """Number of its tasks in these statuses and of pending ones that request nothing."""
    return sum(
        task.status in statuses or (task.status is entities.Status.PENDING and task.is_best_effort)
        for task in subjob.tasks.values()
    )


def _are_enough(job: entities.Job, whole: Iterable[entities.SubJob]) -> bool:
    counts = Counter(each.policy for each in whole)
    return all(counts[policy] >= least for policy, least in job.sub_group_minimums.items())


def _group_of(job: entities.Job, task: entities.Task) -> entities.SubJob:
    labels = task.pod.metadata.labels or {}
    key, policy, least, index = job.key, "", 1, 0
    for each in job.pod_group.spec.sub_group_policy:
        values = [labels.get(name, "") for name in each.match_label_keys]
        meant = pod_terms.selector(each.label_selector, {})
        if values and all(values) and (meant is None or meant.matches(labels)):
            key, policy = f"{job.key}/{each.name}-{'-'.join(values)}", each.name
            # A subgroup with a minimum of zero would be complete without any task.
            least = max(1 if each.sub_group_size is None else each.sub_group_size, 1)
            index = int(values[0]) if values[0].isdecimal() else 0
            break
    if key not in job.subjobs:
        job.subjobs[key] = entities.SubJob(key, least, policy=policy, match_index=index)
    return job.subjobs[key]

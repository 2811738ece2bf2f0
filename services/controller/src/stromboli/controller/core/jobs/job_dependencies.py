"""Dependencies of jobs on other jobs.

A job gets no PodGroup, and so uses no quota of its queue, until every condition holds. Its status
then records that they hold, before the PodGroup is created, and they are not evaluated again. From
then on, the jobs that it depended on may be deleted, and it may restart, move to another queue, or
be suspended, also before it has a pod. An absent job never counts as ended. Therefore a finished
job is retained beyond its time to live until the jobs that depend on it have begun.
"""

from collections.abc import Iterator

import msgspec

from stromboli.controller.core import lifecycle
from stromboli.controller.core.pods import pods
from stromboli.controller.core.store import controller_cache
from stromboli.shared import keys
from stromboli.shared.api.batch import Job
from stromboli.shared.jobspec import dependency_cycles, job_dependencies

BEFORE = ("", "Pending")
"""Phases in which no pod of the job runs or has run."""


class ConditionResult(msgspec.Struct, frozen=True):
    """Whether a condition holds, whether it can still hold, and why it does not hold."""

    holds: bool
    never: bool = False
    why: str = ""


def unmet_conditions(cache: controller_cache.ControllerCache, job: Job) -> Iterator[pods.Blocker]:
    """The unmet conditions that keep the job Pending."""
    if not job.metadata.annotation(keys.AFTER) or has_begun(cache, job):
        return
    try:
        waits = job_dependencies.of(job)
    except ValueError as error:
        yield pods.Blocker("Refused", f"{keys.AFTER}: {error}; the job does not start")
        return
    if cycle := _cycle(cache, job):
        yield pods.Blocker(
            "Refused",
            f"the jobs {', '.join(cycle)} wait for each other, so none of them starts; remove "
            f"{keys.AFTER} from one of them",
        )
        return
    for wait in waits:
        verdict = evaluate(cache, job, wait)
        if not verdict.holds:
            message = f"{wait.condition}:{wait.job}: {verdict.why}"
            if verdict.never:
                yield pods.Blocker("NeverBegins", message)
            else:
                yield pods.Blocker("WaitsForJob", message, type="Normal")


def is_to_record(job: Job) -> bool:
    """Whether the status of this job, which is not blocked, still has to record that its conditions
    hold."""
    return bool(job.metadata.annotation(keys.AFTER)) and not job.status.dependencies_met


def evaluate(
    cache: controller_cache.ControllerCache, job: Job, wait: job_dependencies.JobDependency
) -> ConditionResult:
    """Evaluate the condition of one dependency."""
    key = f"{job.metadata.namespace}/{wait.job}"
    other = cache.job(key)
    if other is None:
        return ConditionResult(
            holds=False,
            why=f"job {wait.job} does not exist, so its end is not known; submit it, or remove "
            f"{keys.AFTER} from this job",
        )
    phase = other.status.state.phase
    has_ended = phase in lifecycle.FINISHED
    waits = ConditionResult(holds=False, why=f"job {wait.job} is {phase or 'new'}")
    match wait.condition:
        case "after":
            return ConditionResult(holds=True) if phase not in BEFORE else waits
        case "afterany":
            return ConditionResult(holds=True) if has_ended else waits
        case _:
            is_good = phase == "Completed"
            if not has_ended:
                return waits
            if is_good == (wait.condition == "afterok"):
                return ConditionResult(holds=True)
            why = (
                f"job {wait.job} ended as {phase}; delete this job, or remove {keys.AFTER} from it"
            )
            return ConditionResult(holds=False, never=True, why=why)


def has_begun(cache: controller_cache.ControllerCache, job: Job) -> bool:
    """Whether the job's conditions held, or it has or had a PodGroup or pods."""
    if job.status.dependencies_met:
        return True
    if cache.pod_group(f"{job.metadata.namespace}/{pods.group_name(job)}") is not None:
        return True
    published = cache.published.of_job(job)
    return published is not None and published.has_had_pods


def is_awaited(cache: controller_cache.ControllerCache, job: Job) -> bool:
    """Whether a pending job waits for the end of this one."""
    return any(
        wait.job == job.metadata.name and not evaluate(cache, other, wait).never
        for other in cache.waiting_for(job.metadata.key)
        if other.status.state.phase in BEFORE and not has_begun(cache, other)
        for wait in job_dependencies.of(other)
    )


def _cycle(cache: controller_cache.ControllerCache, job: Job) -> list[str]:
    """Names of the jobs in a dependency cycle that keeps this job from ever beginning."""
    needs: dict[str, tuple[str, ...]] = {}
    coming = [job.metadata.name]
    while coming:
        name = coming.pop()
        current_job = cache.job(f"{job.metadata.namespace}/{name}")
        if current_job is None or name in needs or current_job.status.state.phase not in BEFORE:
            continue
        needs[name] = job_dependencies.job_names(current_job)
        coming += needs[name]
    waiting = dependency_cycles.members_of_cycles(needs)
    return sorted(waiting) if job.metadata.name in waiting else []

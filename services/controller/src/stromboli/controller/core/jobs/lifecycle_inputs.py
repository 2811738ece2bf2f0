"""Collects the inputs of the life-cycle rules from a job and its pods."""

from datetime import datetime

from stromboli.controller.core import lifecycle
from stromboli.controller.core.jobs import job_pods
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.tasks import arrays, dependencies, tasks
from stromboli.shared.api.batch import Job


def collect(
    cache: controller_cache.ControllerCache, job: Job, observed: job_pods.JobPods, now: datetime
) -> lifecycle.LifecycleInputs:
    """The current inputs. O(tasks); O(pods) where tasks depend on tasks, or of an array.

    Pods that have to be deleted are counted separately: with them, there could be more pods than
    replicas, and a job could have enough running pods and too many pending pods at the same time.
    """
    counts = observed.kept
    specs = tasks.specs(job)
    current = observed.current if dependencies.has_any(job) else []
    released = dependencies.released(cache, job, current)
    retry_at = job.status.retry_at
    return lifecycle.LifecycleInputs(
        phase=tasks.phase_of(job),
        min_available=tasks.min_available(job),
        starts_with=dependencies.gang(job, dependencies.roots(job)),
        min_success=job.spec.min_success,
        max_retry=tasks.max_retry(job),
        retry_count=tasks.spent_tries(job),
        tasks=tuple(
            lifecycle.TaskInputs(
                name=task.name,
                replicas=task.replicas,
                min_available=task.min_available,
                observed=task.name in counts.by_task,
                succeeded=counts.by_task.get(task.name, {}).get("Succeeded", 0),
            )
            for task in specs
        ),
        pending=counts.pending,
        running=counts.running,
        succeeded=counts.succeeded,
        failed=counts.failed,
        terminating=counts.terminating,
        to_delete=observed.to_delete,
        waiting=sum(
            task.replicas - _ended(counts, task.name) for task in specs if task.name not in released
        ),
        indexes=arrays.total(job),
        is_backing_off=retry_at is not None and now < retry_at,
    )


def _ended(counts: tasks.Tally, task: str) -> int:
    """How many pods of the task have a result: a resumed job keeps them."""
    phases = counts.by_task.get(task, {})
    return sum(phases.get(phase, 0) for phase in tasks.FINISHED_PODS)

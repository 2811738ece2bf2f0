"""The phase and counts that a session writes to each PodGroup when it closes."""

from stromboli.scheduler.core.model import entities


def phase(job: entities.Job) -> str:
    """The phase to write, after plugins have closed."""
    if job.is_unschedulable and job.count(entities.Status.RUNNING):
        # Only a gang that was complete can become incomplete: one that is still being placed waits,
        # even if some of its pods terminate.
        if job.phase in ("Running", "Unknown"):
            return "Unknown"
        if job.phase == "Inqueue":
            return "Inqueue"
    releasing = sum(bool(task.node) for task in job.with_status(entities.Status.RELEASING))
    scheduled = job.count_in(entities.SCHEDULED) + releasing
    completed = job.count_in(entities.COMPLETED)
    # A job without a minimum is not complete while its pods wait. Volcano makes it Completed
    # immediately, because zero of zero tasks are done.
    if scheduled >= max(job.min_available, 1):
        return "Completed" if scheduled == completed else "Running"
    return "Inqueue" if job.phase == "Inqueue" else "Pending"


def counts(job: entities.Job) -> dict[str, int]:
    """Status -> number of tasks, without zeros."""
    return {
        status.value: len(job.by_status[status])
        for status in entities.Status
        if job.by_status.get(status)
    }

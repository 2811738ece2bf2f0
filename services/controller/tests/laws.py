"""What holds at every write, whatever has happened before."""

from stromboli.controller.core import lifecycle, tasks, view
from stromboli.shared import keys
from stromboli.shared.api import batch, core


def check_life(before: batch.JobStatus, job: batch.Job) -> None:
    """Every phase is reached by a move of the table, the end stays as it is, and tries stay
    within their budget."""
    after = job.status
    if before.state.phase != after.state.phase:
        moves = {
            move.to for (phase, _), move in lifecycle.TABLE.items() if phase == before.state.phase
        }
        assert after.state.phase in moves, (before, after)
    if before.state.phase in lifecycle.FINISHED:
        assert (before.succeeded, before.failed) == (after.succeeded, after.failed)
    assert before.version <= after.version
    assert before.retry_count <= after.retry_count
    assert before.asked_retries <= after.asked_retries
    assert after.retry_count - after.asked_retries <= (job.spec.max_retry or 3)


def check_place(picture: view.View, pod: core.Pod) -> None:
    """A pod that is made for a task has a place in its job's spec, as the controller knows it,
    and its job does not stop."""
    task = pod.metadata.annotation(keys.TASK_SPEC)
    owner = pod.metadata.controller
    if task is None or owner is None:
        return
    job = picture.job(f"default/{owner.name}")
    assert job is not None
    assert job.status.state.phase not in lifecycle.STOPPING
    (replicas,) = (it.replicas for it in tasks.specs(job) if it.name == task)
    index = int(pod.metadata.annotation(keys.TASK_INDEX) or -1)
    assert job.spec.array is not None or 0 <= index < replicas

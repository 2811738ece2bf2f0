"""The task history of a job, as the REST API returns it: all attempts, not only current ones."""

import msgspec

from stromboli.shared.decoding import Instant


class TaskAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod of a task index.

    ``state``: Pending, Bound, Running, Unknown, Terminating, Succeeded, Failed, Timeout (deleted
    because of the job's time limit) or Gone (deleted without an observed end). ``reason``: why the
    pod ended, as in ``batch.events``. Times are None if the state was not reached or not observed;
    ``created_at`` is then the object's creation time in whole seconds. ``attempt`` counts from 1; 0
    if it is not known. ``detail``: why and for which job or queue a pod was evicted. ``devices``:
    resource -> ids of the devices that were assigned. ``submitted_at``: when it began to
    wait, as in ``accounting.Attempt``.
    """

    task: str
    index: int
    attempt: int
    pod: str
    pod_uid: str
    state: str
    node: str = ""
    reason: str = ""
    exit_code: int | None = None
    retry_count: int = 0
    created_at: Instant | None = None
    bound_at: Instant | None = None
    running_at: Instant | None = None
    terminating_at: Instant | None = None
    ended_at: Instant | None = None
    detail: str = ""
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    submitted_at: Instant | None = None

    @property
    def is_over(self) -> bool:
        """Whether the attempt has ended."""
        return self.ended_at is not None


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job's tasks by name and index, each with its attempts in order. Available even after the
    job is deleted.

    ``complete``: all retained records have been read. ``earlier``: uids of earlier jobs of the same
    name that are still retained, newest first.
    """

    job: str
    uid: str
    deleted_at: Instant | None = None
    complete: bool = True
    tasks: tuple[TaskAttempt, ...] = ()
    earlier: tuple[str, ...] = ()

    @property
    def latest(self) -> tuple[TaskAttempt, ...]:
        """The last attempt of every index."""
        last = {(it.task, it.index): it for it in self.tasks}
        return tuple(last.values())

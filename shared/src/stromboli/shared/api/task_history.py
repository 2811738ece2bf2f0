"""What became of a job's tasks, as REST answers it: every attempt, not only the present ones."""

import msgspec

from stromboli.shared.decoding import Instant


class TaskAttempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod of a task's index.

    ``state``: Pending, Bound, Running, Unknown, Terminating, Succeeded, Failed or Gone (it went
    without an end of its own). ``reason``: why it ends, as in ``batch.events``. Times are None
    until it came so far, and where nobody saw it; ``created_at`` is then its object's, in whole
    seconds. ``attempt`` counts from 1, 0 if it is not known.
    ``devices``: resource -> ids of those that were meant for it.
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
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether nothing follows."""
        return self.ended_at is not None


class TaskHistory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job's tasks by name and index, each with its attempts in order, also when the job is gone.

    ``complete``: everything that the log keeps has been read. ``earlier``: uids of earlier jobs of
    the same name that are still kept, the newest first.
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

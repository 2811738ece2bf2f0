"""A job in a simulation: its tasks, and its phase by the controller's life-cycle table."""

from typing import Literal

from stromboli.controller.core import lifecycle
from stromboli.embedded.simulation.core import objects, workload
from stromboli.shared.api import core, scheduling

State = Literal["pending", "running", "succeeded"]
_UNLIMITED = 2**31 - 1
"""``maxRetry`` of simulated jobs: evictions cost no retry, because a simulation shows how often a
policy evicts."""


class TaskRun:
    """One task: its state, its pod, and how much of its duration is left. ``progress_us``: since
    when it makes progress, -1 while it does not. ``lacks_data``: its node has not all of its data
    sets yet."""

    __slots__ = (
        "index",
        "lacks_data",
        "left_us",
        "node",
        "pod",
        "progress_us",
        "started_us",
        "state",
    )

    def __init__(self, index: int, left_us: int) -> None:
        self.index = index
        self.left_us = left_us
        self.state: State = "pending"
        self.node = ""
        self.started_us = 0
        self.progress_us = -1
        self.pod: core.Pod | None = None
        self.lacks_data = False


class JobRun:
    """One job. ``number``: its place in the order of submission. ``task_us``: the time that its
    tasks ran in all attempts. ``spans_us``: start and end of each attempt that is over.
    ``fetching``: number of its tasks that lack data."""

    __slots__ = (
        "attempts",
        "end_us",
        "evicted_tasks",
        "evictions",
        "fetching",
        "first_start_us",
        "group",
        "job",
        "number",
        "phase",
        "running",
        "spans_us",
        "started_us",
        "succeeded",
        "task_us",
        "tasks",
    )

    def __init__(self, job: workload.Job, number: int) -> None:
        self.job = job
        self.number = number
        self.phase: lifecycle.Phase = ""
        self.group: scheduling.PodGroup | None = None
        self.tasks = [TaskRun(index, job.duration_us) for index in range(job.tasks)]
        self.running = 0
        self.succeeded = 0
        self.attempts = 0
        self.evictions = 0
        self.evicted_tasks = 0
        self.task_us = 0
        self.fetching = 0
        self.started_us = -1
        self.spans_us: list[tuple[int, int]] = []
        self.first_start_us = -1
        self.end_us = -1

    @property
    def key(self) -> str:
        """Key of the PodGroup."""
        return f"{objects.NAMESPACE}/{self.job.name}"

    @property
    def min_member(self) -> int:
        """How many tasks the gang needs now: those that succeeded in an earlier attempt, with
        ``keeps_progress``, need no pod."""
        ended = sum(task.state == "succeeded" and task.pod is None for task in self.tasks)
        return max(1, min(self.job.min_available - ended, self.job.tasks - ended))

    @property
    def makes_progress(self) -> bool:
        """Whether its running tasks make progress."""
        are_all_on = self.running + self.succeeded == self.job.tasks
        return not self.job.is_synchronous or (are_all_on and not self.fetching)

    @property
    def is_finished(self) -> bool:
        """Whether the job has reached a final phase."""
        return self.phase in lifecycle.FINISHED

    @property
    def falls_short(self) -> bool:
        """Whether fewer tasks run or have succeeded than the gang needs."""
        return self.running + self.succeeded < self.job.min_available

    def advance(self) -> bool:
        """Apply all transitions that follow from the tasks' states; return whether there was one.

        Raises IllegalTransitionError for one that is not in the table.
        """
        has_moved = False
        while (event := lifecycle.next_event(self._inputs())) is not None:
            self.phase = lifecycle.transition(self.phase, event).to
            has_moved = True
        return has_moved

    def restart(self) -> None:
        """Apply the action RestartJob, because the gang lost members, and the transitions after
        it."""
        self.phase = lifecycle.transition(self.phase, "RestartJob").to
        self.advance()

    def _inputs(self) -> lifecycle.LifecycleInputs:
        job = self.job
        waiting = job.tasks - self.running - self.succeeded
        return lifecycle.LifecycleInputs(
            phase=self.phase,
            min_available=job.min_available,
            starts_with=job.min_available,
            min_success=None,
            max_retry=_UNLIMITED,
            retry_count=0,
            tasks=(
                lifecycle.TaskInputs(
                    name=objects.TASK,
                    replicas=job.tasks,
                    min_available=job.min_available,
                    observed=True,
                    succeeded=self.succeeded,
                ),
            ),
            pending=waiting,
            running=self.running,
            succeeded=self.succeeded,
            failed=0,
            terminating=0,
            doomed=0,
        )

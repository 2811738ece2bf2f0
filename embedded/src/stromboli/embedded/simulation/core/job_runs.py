"""A job in a simulation: its tasks, and its phase by the controller's life-cycle table."""

from collections.abc import Iterable
from typing import Literal

from stromboli.controller.core import lifecycle
from stromboli.embedded.simulation.core import hardware, objects, workload
from stromboli.shared.api import core, meta, scheduling

State = Literal["pending", "running", "succeeded"]
_UNLIMITED = 2**31 - 1
"""``maxRetry`` of simulated jobs: evictions cost no retry, because a simulation shows how often a
policy evicts."""


class TaskRun:
    """One task: its state, its pod, and how much of its duration is left. ``progress_us``: since
    when it makes progress, -1 while it does not. ``slowdown``: the factor by which it takes longer
    where it is. ``lacks_data``: its node has not all of its data sets yet."""

    __slots__ = (
        "index",
        "lacks_data",
        "node",
        "pod",
        "progress_us",
        "remaining_us",
        "slowdown",
        "started_us",
        "state",
    )

    def __init__(self, index: int, remaining_us: int) -> None:
        self.index = index
        self.remaining_us = remaining_us
        self.state: State = "pending"
        self.node = ""
        self.started_us = 0
        self.progress_us = -1
        self.pod: core.Pod | None = None
        self.lacks_data = False
        self.slowdown = 1.0

    def let_progress(self, now_us: int, slowdown: float) -> int:
        """Let the task make progress from now on; return the time at which it ends."""
        self.progress_us, self.slowdown = now_us, slowdown
        return now_us + round(self.remaining_us * slowdown)

    def pause(self, now_us: int) -> None:
        """Stop the task's progress."""
        if self.progress_us >= 0:
            self.remaining_us -= round((now_us - self.progress_us) / self.slowdown)
        self.progress_us = -1

    def still_runs(self, started_us: int) -> bool:
        """Whether the task has been running since this time."""
        return self.state == "running" and self.started_us == started_us


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

    def placed_on(self, model: hardware.Hardware | None, task: TaskRun) -> Iterable[meta.Object]:
        """The objects that change because the task holds its node."""
        if model is None:
            return ()
        cores = self.job.resources.cpu_milli // 1000
        return model.place(objects.pod_name(self.job, task.index), cores, task.node)

    def released_on(self, model: hardware.Hardware | None, task: TaskRun) -> Iterable[meta.Object]:
        """The objects that change because the task no longer holds its node."""
        return () if model is None else model.release(objects.pod_name(self.job, task.index))

    def slowdown_on(self, model: hardware.Hardware | None) -> float:
        """The factor by which its running tasks take longer where they are."""
        if model is None:
            return 1.0
        running = (task for task in self.tasks if task.state == "running")
        return model.slowdown(
            {objects.pod_name(self.job, task.index): task.node for task in running}
        )

    @property
    def slowdown(self) -> float:
        """The factor by which its slowest task took longer."""
        return max(task.slowdown for task in self.tasks)

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
            to_delete=0,
        )

"""The life cycle of a job: a table of (phase, event), and the rules that derive the event.

The diagram in ``docs/job-lifecycle.md`` is drawn from ``TABLE``. A transition that is not in the
table raises and changes nothing. In a ``STOPPING`` phase pods are deleted; in all others they may
run.

Source: Volcano's job states. Deliberate differences: a finished job keeps its counts and version,
an action during a restart is executed, and a job past its deadline has failed.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from stromboli.shared.formats.counts import counted

Phase = Literal[
    "",
    "Pending",
    "Running",
    "Restarting",
    "Completing",
    "Completed",
    "Aborting",
    "Aborted",
    "Terminating",
    "Terminated",
    "Failed",
]
Action = Literal[
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "AbortJob",
    "CompleteJob",
    "TerminateJob",
    "ResumeJob",
]
"""Actions of users and policies. SyncJob only triggers a reconcile, so it is not an event."""
Event = Literal[
    "Accepted",
    "Started",
    "FellShort",
    "Succeeded",
    "Failed",
    "Cleared",
    "Exhausted",
    "Stopped",
    "DeadlineExceeded",
    "QueueChanged",
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "AbortJob",
    "CompleteJob",
    "TerminateJob",
    "ResumeJob",
]

MEANING: Mapping[Event, str] = {
    "Accepted": "the controller has read the job",
    "Started": "enough pods run or have ended",
    "FellShort": "too many pods are pending again",
    "Succeeded": "enough pods succeeded",
    "Failed": "all pods ended, too few succeeded",
    "Cleared": "the old pods are being deleted",
    "Exhausted": "no retry is left",
    "Stopped": "every pod has ended",
    "DeadlineExceeded": "the job's deadline has passed",
    "QueueChanged": "the job has another queue than its PodGroup",
    "RestartJob": "RestartJob",
    "RestartTask": "RestartTask",
    "RestartPod": "RestartPod",
    "RestartPartition": "RestartPartition",
    "AbortJob": "AbortJob",
    "CompleteJob": "CompleteJob",
    "TerminateJob": "TerminateJob",
    "ResumeJob": "ResumeJob",
}

ACTIONS: tuple[Action, ...] = get_args(Action)
PARTIAL: frozenset[str] = frozenset({"RestartTask", "RestartPod", "RestartPartition"})
"""Actions on a part of a job; the rest keeps running."""
PHASES: tuple[Phase, ...] = get_args(Phase)
FINISHED: frozenset[str] = frozenset({"Completed", "Failed", "Terminated"})
"""Final phases."""
STOPPING: frozenset[str] = FINISHED | {
    "Restarting",
    "Completing",
    "Aborting",
    "Aborted",
    "Terminating",
}
"""Phases in which pods are deleted and none is created; a partial restart ends only its part."""


class Transition(msgspec.Struct, frozen=True):
    """A transition. ``retry``: it increments the retry count. ``new_version``: it begins a new job
    version, so that all earlier pods and the PodGroup are *old*."""

    to: Phase
    retry: bool = False
    new_version: bool = False


_PART = Transition("Restarting", retry=True)
_MORE = Transition("Restarting")
_ALL = Transition("Restarting", new_version=True)
_OVERDUE = Transition("Failed")
_RESTART = Transition("Restarting", retry=True, new_version=True)
_ABORT = Transition("Aborting", new_version=True)
_COMPLETE = Transition("Completing", new_version=True)
_TERMINATE = Transition("Terminating", new_version=True)
_RESUME = Transition("Restarting", retry=True, new_version=True)

TABLE: Mapping[tuple[Phase, Event], Transition] = {
    ("", "Accepted"): Transition("Pending"),
    ("Pending", "Started"): Transition("Running"),
    ("Pending", "DeadlineExceeded"): _OVERDUE,
    ("Pending", "QueueChanged"): _RESTART,
    ("Pending", "RestartJob"): _RESTART,
    ("Pending", "RestartTask"): _PART,
    ("Pending", "RestartPod"): _PART,
    ("Pending", "RestartPartition"): _PART,
    ("Pending", "AbortJob"): _ABORT,
    ("Pending", "CompleteJob"): _COMPLETE,
    ("Pending", "TerminateJob"): _TERMINATE,
    ("Running", "FellShort"): Transition("Pending"),
    ("Running", "Succeeded"): Transition("Completed"),
    ("Running", "Failed"): Transition("Failed"),
    ("Running", "DeadlineExceeded"): _OVERDUE,
    ("Running", "RestartJob"): _RESTART,
    ("Running", "RestartTask"): _PART,
    ("Running", "RestartPod"): _PART,
    ("Running", "RestartPartition"): _PART,
    ("Running", "AbortJob"): _ABORT,
    ("Running", "CompleteJob"): _COMPLETE,
    ("Running", "TerminateJob"): _TERMINATE,
    ("Restarting", "Cleared"): Transition("Pending"),
    ("Restarting", "Exhausted"): Transition("Failed"),
    ("Restarting", "DeadlineExceeded"): _OVERDUE,
    ("Restarting", "RestartJob"): _ALL,
    ("Restarting", "RestartTask"): _MORE,
    ("Restarting", "RestartPod"): _MORE,
    ("Restarting", "RestartPartition"): _MORE,
    ("Restarting", "AbortJob"): _ABORT,
    ("Restarting", "CompleteJob"): _COMPLETE,
    ("Restarting", "TerminateJob"): _TERMINATE,
    ("Completing", "Stopped"): Transition("Completed"),
    ("Terminating", "Stopped"): Transition("Terminated"),
    ("Aborting", "Stopped"): Transition("Aborted"),
    ("Aborting", "ResumeJob"): _RESUME,
    ("Aborted", "ResumeJob"): _RESUME,
}


class IllegalTransitionError(Exception):
    """Raised for an event that has no transition in this phase, which is a bug."""

    def __init__(self, phase: str, event: str) -> None:
        super().__init__(f"a job in phase {phase!r} has no transition for {event}")
        self.phase = phase
        self.event = event


def transition(phase: Phase, event: Event) -> Transition:
    """The transition of an event. Raises IllegalTransitionError."""
    try:
        return TABLE[phase, event]
    except KeyError:
        raise IllegalTransitionError(phase, event) from None


def accepts(phase: Phase, event: Event) -> bool:
    """Whether the table has a transition for the event."""
    return (phase, event) in TABLE


class TaskInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of one task, from its spec and its pods. ``min_available``: None if not set.
    ``observed``: whether the counts contain a pod of the task."""

    name: str
    replicas: int
    min_available: int | None
    observed: bool
    succeeded: int


class LifecycleInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the life-cycle rules for one job.

    ``retry_count``: failed attempts, without free restarts. ``starts_with``: the gang of the tasks
    without dependencies. ``to_delete``: pods that have to be deleted and are not being deleted yet.
    ``waiting``: replicas without result of tasks whose dependencies are not met; if all other pods
    have ended, they will never be created. ``indexes``: the number of indexes of an array, None
    for other jobs.
    """

    phase: Phase
    min_available: int
    starts_with: int
    min_success: int | None
    max_retry: int
    retry_count: int
    tasks: tuple[TaskInputs, ...]
    pending: int
    running: int
    succeeded: int
    failed: int
    terminating: int
    to_delete: int
    waiting: int = 0
    indexes: int | None = None
    is_backing_off: bool = False

    @property
    def replicas(self) -> int:
        """The number of pods in the spec."""
        return sum(task.replicas for task in self.tasks)

    @property
    def results(self) -> int:
        """The number of pods, or indexes of an array, that will end. It is 0 for an array with all
        indexes cancelled."""
        return self.replicas - self.waiting if self.indexes is None else self.indexes


def next_event(facts: LifecycleInputs) -> Event | None:
    """The event that follows from the states of the pods; None if the phase does not change."""
    match facts.phase:
        case "":
            return "Accepted"
        case "Pending":
            ended_or_running = facts.running + facts.succeeded + facts.failed
            return "Started" if facts.starts_with <= ended_or_running else None
        case "Running":
            return _next_event_running(facts)
        case "Restarting":
            if facts.retry_count >= facts.max_retry:
                return "Exhausted"
            if facts.is_backing_off or facts.to_delete:
                return None
            room = facts.replicas - facts.terminating
            return "Cleared" if room >= facts.min_available else None
        case "Completing" | "Terminating" | "Aborting":
            alive = facts.terminating + facts.pending + facts.running + facts.to_delete
            return "Stopped" if alive == 0 else None
        case _:
            return None


def _next_event_running(facts: LifecycleInputs) -> Event | None:
    """The event of a job in phase Running; rules in Volcano's order."""
    if facts.replicas == 0:
        return None
    if facts.min_success is not None and facts.succeeded >= facts.min_success:
        return "Succeeded"
    if facts.succeeded + facts.failed >= facts.results:
        return "Succeeded" if _has_succeeded(facts) else "Failed"
    if facts.pending > facts.results + facts.waiting - facts.starts_with:
        return "FellShort"
    return None


def _has_succeeded(facts: LifecycleInputs) -> bool:
    return not shortfall(facts)


def shortfall(facts: LifecycleInputs) -> str:
    """Why a job whose pods have all ended did not succeed; empty if it did. An array with a failed
    index has not succeeded."""
    if facts.waiting:
        return f"{counted(facts.waiting, 'pod')} could never be created: their dependencies failed"
    if facts.indexes and facts.failed:
        return f"{facts.failed} of {counted(facts.indexes, 'index', 'indexes')} failed"
    requested = sum(
        task.replicas if task.min_available is None else task.min_available for task in facts.tasks
    )
    if facts.min_available >= requested:
        for task in facts.tasks:
            least = task.min_available
            if task.observed and least is not None and task.succeeded < least:
                return f"{task.succeeded} of {least} needed pods of task {task.name} succeeded"
    needed = facts.min_available if facts.min_success is None else facts.min_success
    if facts.min_success is None and facts.succeeded >= needed:
        return ""
    return f"{facts.succeeded} of {needed} needed pods succeeded"

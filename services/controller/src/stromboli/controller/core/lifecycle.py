"""The life of a job: a table of (phase, event), and the rules that say which event it is.

The diagram in ``docs/job-lifecycle.md`` is drawn from ``TABLE``. A move that is not in it raises
and changes nothing. A phase with a ``STOPPING`` mode ends pods; all others want them to run.

Source: spec/jobs.md 3.3. On purpose unlike it: a finished job keeps its counts and its version,
and an action that arrives while a job restarts is carried out.
"""

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

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
Action = Literal["RestartJob", "AbortJob", "CompleteJob", "TerminateJob", "ResumeJob"]
"""What users and policies ask of a whole job."""
Event = Literal[
    "Accepted",
    "Started",
    "FellShort",
    "Succeeded",
    "Failed",
    "Cleared",
    "Exhausted",
    "Stopped",
    "RestartJob",
    "AbortJob",
    "CompleteJob",
    "TerminateJob",
    "ResumeJob",
]

MEANING: Mapping[Event, str] = {
    "Accepted": "the job is seen",
    "Started": "enough pods run or have ended",
    "FellShort": "too many pods wait again",
    "Succeeded": "enough pods succeeded",
    "Failed": "all pods ended, too few succeeded",
    "Cleared": "the old pods are going",
    "Exhausted": "no retry is left",
    "Stopped": "no pod is alive",
    "RestartJob": "RestartJob",
    "AbortJob": "AbortJob",
    "CompleteJob": "CompleteJob",
    "TerminateJob": "TerminateJob",
    "ResumeJob": "ResumeJob",
}

PHASES: tuple[Phase, ...] = get_args(Phase)
FINISHED: frozenset[str] = frozenset({"Completed", "Failed", "Terminated"})
"""Phases that nothing leaves."""
STOPPING: frozenset[str] = FINISHED | {
    "Restarting",
    "Completing",
    "Aborting",
    "Aborted",
    "Terminating",
}
"""Phases in which pods are ended and none is made."""


class Move(msgspec.Struct, frozen=True):
    """Where an event leads. A ``retry`` counts; a ``new_version`` makes all pods and the PodGroup
    of before *old*."""

    to: Phase
    retry: bool = False
    new_version: bool = False


_RESTART = Move("Restarting", retry=True, new_version=True)
_ABORT = Move("Aborting", new_version=True)
_COMPLETE = Move("Completing", new_version=True)
_TERMINATE = Move("Terminating", new_version=True)
_RESUME = Move("Restarting", retry=True, new_version=True)

TABLE: Mapping[tuple[Phase, Event], Move] = {
    ("", "Accepted"): Move("Pending"),
    ("Pending", "Started"): Move("Running"),
    ("Pending", "RestartJob"): _RESTART,
    ("Pending", "AbortJob"): _ABORT,
    ("Pending", "CompleteJob"): _COMPLETE,
    ("Pending", "TerminateJob"): _TERMINATE,
    ("Running", "FellShort"): Move("Pending"),
    ("Running", "Succeeded"): Move("Completed"),
    ("Running", "Failed"): Move("Failed"),
    ("Running", "RestartJob"): _RESTART,
    ("Running", "AbortJob"): _ABORT,
    ("Running", "CompleteJob"): _COMPLETE,
    ("Running", "TerminateJob"): _TERMINATE,
    ("Restarting", "Cleared"): Move("Pending"),
    ("Restarting", "Exhausted"): Move("Failed"),
    ("Restarting", "AbortJob"): _ABORT,
    ("Restarting", "CompleteJob"): _COMPLETE,
    ("Restarting", "TerminateJob"): _TERMINATE,
    ("Completing", "Stopped"): Move("Completed"),
    ("Terminating", "Stopped"): Move("Terminated"),
    ("Aborting", "Stopped"): Move("Aborted"),
    ("Aborting", "ResumeJob"): _RESUME,
    ("Aborted", "ResumeJob"): _RESUME,
}


class IllegalMoveError(Exception):
    """An event that the table has no move for in this phase: our bug."""

    def __init__(self, phase: str, event: str) -> None:
        super().__init__(f"a job in phase {phase!r} has no move for {event}")
        self.phase = phase
        self.event = event


def move(phase: Phase, event: Event) -> Move:
    """Where the event leads. Raises IllegalMoveError."""
    try:
        return TABLE[phase, event]
    except KeyError:
        raise IllegalMoveError(phase, event) from None


def accepts(phase: Phase, event: Event) -> bool:
    """Whether the table has a move for it."""
    return (phase, event) in TABLE


class TaskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One task: what the spec asks and what its pods are. ``min_available`` None: not said."""

    name: str
    replicas: int
    min_available: int | None
    seen: bool
    succeeded: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the rules look at. ``doomed``: pods that have to go and are not going yet."""

    phase: Phase
    min_available: int
    min_success: int | None
    max_retry: int
    retry_count: int
    tasks: tuple[TaskFacts, ...]
    pending: int
    running: int
    succeeded: int
    failed: int
    terminating: int
    doomed: int

    @property
    def replicas(self) -> int:
        """Pods that the spec asks for."""
        return sum(task.replicas for task in self.tasks)


def judge(facts: Facts) -> Event | None:
    """The event that the pods' states amount to, None if the phase stays."""
    match facts.phase:
        case "":
            return "Accepted"
        case "Pending":
            ended_or_running = facts.running + facts.succeeded + facts.failed
            return "Started" if facts.min_available <= ended_or_running else None
        case "Running":
            return _judge_running(facts)
        case "Restarting":
            if facts.retry_count >= facts.max_retry:
                return "Exhausted"
            room = facts.replicas - facts.terminating
            return "Cleared" if facts.doomed == 0 and room >= facts.min_available else None
        case "Completing" | "Terminating" | "Aborting":
            alive = facts.terminating + facts.pending + facts.running + facts.doomed
            return "Stopped" if alive == 0 else None
        case _:
            return None


def _judge_running(facts: Facts) -> Event | None:
    """The rules R of the specification, in their order."""
    if facts.replicas == 0:
        return None
    if facts.min_success is not None and facts.succeeded >= facts.min_success:
        return "Succeeded"
    if facts.succeeded + facts.failed >= facts.replicas:
        return "Succeeded" if _has_succeeded(facts) else "Failed"
    if facts.pending > facts.replicas - facts.min_available:
        return "FellShort"
    return None


def _has_succeeded(facts: Facts) -> bool:
    """Whether a job, all of whose pods have ended, reached what it was asked for."""
    asked = sum(
        task.replicas if task.min_available is None else task.min_available for task in facts.tasks
    )
    if facts.min_available >= asked and any(
        task.seen and task.min_available is not None and task.succeeded < task.min_available
        for task in facts.tasks
    ):
        return False
    return facts.min_success is None and facts.succeeded >= facts.min_available

"""Words that plugins and the session share: votes, verdicts on nodes, forms of functions."""

import enum
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.model import entities, node_views
from stromboli.shared.messages import scheduling as messages

PERMIT, ABSTAIN, REJECT = 1, 0, -1
"""Votes."""

SCORE_UNIT = 10**6
"""One point of a score: scores are sums of integers, so that any order of adding decides alike."""

Mask: TypeAlias = npt.NDArray[np.bool_]
Scores: TypeAlias = npt.NDArray[np.int64]


class Scope(enum.Enum):
    """How long an answer for a class of tasks on a node stays true within a session."""

    STATIC = "static"
    """Always: labels, taints."""
    LOCAL = "local"
    """Until that node's tasks change: ports, pod count, what is used. The function answers for
    what the view supposes (``View.added``), so that runs of equal tasks are placed at once."""
    GLOBAL = "global"
    """Until any node's tasks change: affinity between pods, spread. A class about which it says
    something is placed task by task. One about which it says nothing (no checks, None) stays
    so while tasks of that class alone are placed."""


class Code(enum.IntEnum):
    """Kinds of refusal, mildest first."""

    UNSCHEDULABLE = 2
    """Evicting tasks from the node may help."""
    UNRESOLVABLE = 3
    """Evicting does not help."""
    ERROR = 1
    """The plugin could not tell."""


class Check(NamedTuple):
    """One reason and the nodes that pass it, in the order in which nodes were asked for.

    ``is_resource``: it counts something that is a column of the nodes as well, and with it what
    still terminates."""

    reason: str
    code: Code
    passed: Mask
    is_resource: bool = False


PLUGIN_FAILED = "PluginFailed"
"""Reason of an ``Invalid`` that is no fault of the job's: who would have judged it has failed."""


class JobInvalid(NamedTuple):
    """Why a job is not tried at all."""

    reason: str
    message: str


class Victims(NamedTuple):
    """A plugin's choice among candidates. ``vote`` ABSTAIN: it has no say in this tier."""

    tasks: Sequence[entities.Task]
    vote: int = PERMIT


class QueueShare(NamedTuple):
    """One amount per resource of the session; ``amounts.INFINITE`` and above: no limit."""

    allocated: Sequence[int]
    promised: Sequence[int]
    """What jobs that passed the door will still take."""
    deserved: Sequence[float]
    capability: Sequence[int]


class Gauge(NamedTuple):
    """One number to be looked at, as it is at a session's end."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


T = TypeVar("T")
Order: TypeAlias = Callable[[T, T], int]
"""Negative: left first; zero: no opinion."""
Key: TypeAlias = Callable[[T], Any]
"""What sorts as the order does; its values compare with each other."""
Predicate: TypeAlias = Callable[[entities.Task, node_views.NodeView], Sequence[Check]]
PrePredicate: TypeAlias = Callable[[entities.Task], str | None]
"""Why tasks of this class fit nowhere at all, or None."""
NodeOrder: TypeAlias = Callable[[entities.Task, node_views.NodeView], Scores | None]
"""Scores in ``SCORE_UNIT``; None stands for zeros."""
DomainOrder: TypeAlias = Callable[[Sequence[entities.Task], npt.NDArray[np.intp]], Scores]
"""(tasks of one job to be placed together, domains) -> scores in ``SCORE_UNIT``."""
JobTest: TypeAlias = Callable[[entities.Job], bool]
JobVote: TypeAlias = Callable[[entities.Job], int]
SubJobTest: TypeAlias = Callable[[entities.Job, entities.SubJob], bool]
SubJobVote: TypeAlias = Callable[[entities.Job, entities.SubJob], int]
JobValidity: TypeAlias = Callable[[entities.Job], JobInvalid | None]
QueueTest: TypeAlias = Callable[[entities.Queue], bool]
QueueShares: TypeAlias = Callable[[entities.Queue], QueueShare | None]
Allocatable: TypeAlias = Callable[[entities.Queue, entities.Task, int], int]
"""(queue, task, most) -> how many tasks like this one, up to ``most``, the queue may hold."""
JobReady: TypeAlias = Callable[[entities.Job, entities.Task | None], int]
"""(job, task or None) -> how many more tasks, or tasks like this one, the job needs to be bound."""
Preemptive: TypeAlias = Callable[[entities.Queue, Sequence[entities.Task]], bool]
VictimChoice: TypeAlias = Callable[[entities.Task, Sequence[entities.Task]], Victims]
"""(preemptor or reclaimer, candidates) -> victims."""
UnifiedChoice: TypeAlias = Callable[[str, entities.Job, Sequence[entities.Task]], Victims]
"""(action ``gangpreempt`` or ``gangreclaim``, preemptor's job, candidates) -> victims."""
VictimOrder: TypeAlias = Callable[[entities.Queue, entities.Queue, entities.Queue], int]
"""(left, right, preemptor's queue); negative: left's tasks are evicted first."""
VictimSource: TypeAlias = Callable[[Sequence[entities.Task]], Sequence[entities.Task]]
"""All running tasks -> those to be shuffled."""
TaskEvent: TypeAlias = Callable[[Sequence[entities.Task]], None]
"""Called with tasks of one class and job, after the change is applied to job and nodes."""
Step: TypeAlias = messages.ClaimedVolume | messages.ClaimedDevices
Preparation: TypeAlias = Callable[[entities.Task], Sequence[Step]]
"""What must be done before the task's bind, such as binding a volume's claim."""
Annotation: TypeAlias = Callable[[entities.Task], Mapping[str, str]]
"""What is to stand on the pod once it is bound, by annotation."""
ClassKey: TypeAlias = Callable[[entities.Task], Hashable]
"""What a plugin looks at besides the task's class."""
JobBlocked: TypeAlias = Callable[[entities.Job], str]
"""Told of a job that was tried and cannot start now: why nothing behind it in its queue may start
before it, or empty if others may."""
JobMoved: TypeAlias = Callable[[entities.Job], bool]
"""Whether what others were given has moved the job back in its order since it was last asked about.
Until it is asked, the order stays as it was: a queue of jobs is kept by it."""
Evictable: TypeAlias = Callable[[entities.Job | None, entities.Task], bool]
"""(for whose job, candidate) -> whether it may be evicted; None for evictions for nobody."""
EvictionNotice: TypeAlias = Callable[[entities.Task], timedelta]
"""How long before its end an evicted task is told."""
NodeAvailability: TypeAlias = Callable[[datetime, "timedelta | None", node_views.Rows], Mask]
"""(start, run time, rows) -> nodes where a task that starts then is not disturbed before it ends;
no run time: it never ends by itself."""

"""Types of the extension points: votes, checks, victims and the signatures of functions."""

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
"""One point of a score. Scores are sums of integers, so that the order of addition does not
matter.
"""

Mask: TypeAlias = npt.NDArray[np.bool_]
Scores: TypeAlias = npt.NDArray[np.int64]


class Scope(enum.Enum):
    """How long an answer for a task class on a node is valid within a session."""

    STATIC = "static"
    """For the whole session: labels, taints."""
    LOCAL = "local"
    """Until the tasks on that node change: ports, pod count, resources. The function answers for
    ``NodeView.added`` further tasks, so that runs of equal tasks are placed at once.
    """
    GLOBAL = "global"
    """Until the tasks on any node change: pod affinity, spread. A class with such an answer is
    placed task by task. A class without one (no checks, None) stays without one while only tasks of
    that class are placed.
    """


class Code(enum.IntEnum):
    """Kinds of refusal, with the numbers of Kubernetes' scheduler. Only nodes that are refused as
    UNSCHEDULABLE are candidates for evictions."""

    UNSCHEDULABLE = 2
    """Evicting tasks from the node may help."""
    UNRESOLVABLE = 3
    """Evicting does not help."""
    ERROR = 1
    """The plugin cannot decide, or the node is not for this scheduler. Evicting does not help."""


class Check(NamedTuple):
    """One reason and the nodes that pass, in the order of the view.

    ``is_resource``: the check counts a resource that is also a column of the nodes, terminating
    tasks included. ``is_lasting``: the end of other gangs' tasks does not let a node pass, as with
    labels, taints and volumes.
    """

    reason: str
    code: Code
    passed: Mask
    is_resource: bool = False
    is_lasting: bool = False


PLUGIN_FAILED = "PluginFailed"
"""Reason of a ``JobInvalid`` whose cause is the failure of a plugin, not the job.
"""


class JobInvalid(NamedTuple):
    """The reason for which a session skips a job."""

    reason: str
    message: str


class Evictor(NamedTuple):
    """The properties of a job that needs room on which the choice of its victims depends."""

    queue: str
    priority: int


class Victims(NamedTuple):
    """A plugin's choice among candidates. With ``vote`` ABSTAIN the plugin has no opinion in this
    tier.
    """

    tasks: Sequence[entities.Task]
    vote: int = PERMIT


class QueueShare(NamedTuple):
    """A queue's usage and limits. Each field has one amount per resource column;
    ``resource_vectors.INFINITE`` and above mean no limit."""

    allocated: Sequence[int]
    promised: Sequence[int]
    """Resources that admitted jobs still lack for their minimum resources."""
    deserved: Sequence[float]
    capability: Sequence[int]


class Gauge(NamedTuple):
    """One number for dashboards, as of the end of a session."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


T = TypeVar("T")
Order: TypeAlias = Callable[[T, T], int]
"""Negative: left first; zero: no opinion."""
Key: TypeAlias = Callable[[T], Any]
"""A sort key, ascending; all its values must be comparable with each other."""
Predicate: TypeAlias = Callable[[entities.Task, node_views.NodeView], Sequence[Check]]
PrePredicate: TypeAlias = Callable[[entities.Task], str | None]
"""Why tasks of this class fit on no node, or None."""
NodeOrder: TypeAlias = Callable[[entities.Task, node_views.NodeView], Scores | None]
"""Scores in ``SCORE_UNIT``; None for zeros."""
DomainOrder: TypeAlias = Callable[[Sequence[entities.Task], npt.NDArray[np.intp]], Scores]
"""(tasks of one job that are placed together, domains) -> scores in ``SCORE_UNIT``."""
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
VictimJob: TypeAlias = Callable[[Evictor, entities.Job], bool]
"""(evictor, other job) -> whether tasks of the other job may be victims, on any node."""
UnifiedChoice: TypeAlias = Callable[[str, entities.Job, Sequence[entities.Task]], Victims]
"""(action ``gangpreempt`` or ``gangreclaim``, preemptor's job, candidates) -> victims."""
Siblings: TypeAlias = Callable[[entities.Queue], tuple[Hashable, Any]]
"""Queue -> a group of queues and a key that orders the group."""
VictimOrder: TypeAlias = Callable[[entities.Queue, entities.Queue, entities.Queue], int]
"""(left, right, preemptor's queue); negative: left's tasks are evicted first."""
VictimSource: TypeAlias = Callable[[Sequence[entities.Task]], Sequence[entities.Task]]
"""(tasks) -> the chosen ones among them."""
TaskEvent: TypeAlias = Callable[[Sequence[entities.Task]], None]
"""Called with tasks of one class and job after the change is applied."""
Step: TypeAlias = messages.ClaimedVolume | messages.ClaimedDevices
Preparation: TypeAlias = Callable[[entities.Task], Sequence[Step]]
"""Steps to take before the task is bound, such as binding a volume's claim."""
Annotation: TypeAlias = Callable[[entities.Task], Mapping[str, str]]
"""Annotations that the pod gets with its bind."""
ClassKey: TypeAlias = Callable[[entities.Task], Hashable]
"""The data of a task, in addition to its class, that a plugin depends on."""
JobBlocked: TypeAlias = Callable[[entities.Job], str]
"""Called for a job that was tried and cannot start now: why jobs after it in its queue must wait,
or empty if they need not.
"""
JobMoved: TypeAlias = Callable[[entities.Job], bool]
"""Whether the job comes later in the order than at the last call, because other jobs were served.
The heap of jobs keeps its order between two calls.
"""
Evictable: TypeAlias = Callable[[entities.Job | None, entities.Task], bool]
"""(job that needs room, candidate) -> whether the candidate may be evicted; the job is None if the
eviction serves no job.
"""
EvictionNotice: TypeAlias = Callable[[entities.Task], timedelta]
"""How long before its termination an evicted task is notified."""
NodeAvailability: TypeAlias = Callable[[datetime, "timedelta | None", node_views.Rows], Mask]
"""(start, run time, rows) -> nodes that stay available to a task from its start to its end.
Without a run time the task never ends by itself.
"""

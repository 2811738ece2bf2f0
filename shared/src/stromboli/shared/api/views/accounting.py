"""Accounting of past and running jobs: queries to the history and their results, as services and
REST exchange them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from stromboli.shared.decoding import Instant

When = TypeVar("When", int, datetime)
"""A time; an int is microseconds since 1970."""
MOST_ATTEMPTS = 10_000
"""Maximum number of attempts in a page, a few megabytes."""
ATTEMPTS_PER_PAGE = 1000
MOST_JOBS = 100
"""Maximum number of jobs in a page, each with its specification and its phases."""
MOST_PHASES = 1000
"""Maximum number of phases of one job in a result; if a job has more, the newest are kept."""
MOST_REQUESTS = 1000
"""Maximum number of users' requests about one job in a result; the newest are kept."""
DELETE_JOB, CHANGE_JOB = "DeleteJob", "ChangeJob"
"""The actions of requests to delete and to change a job."""
_REQUESTED = {
    DELETE_JOB: "deletion requested",
    CHANGE_JOB: "changed",
    "AbortJob": "suspended",
    "ResumeJob": "resumed",
    "RestartJob": "restarted",
    "TerminateJob": "terminated",
    "CompleteJob": "completed",
}
"""Action of a request -> its words."""
MOST_EVICTIONS = 10_000
MOST_CHANGES = 1000
"""Maximum number of changes of the cluster in a page."""
MOST_EXPLANATIONS = 1000
"""Maximum number of explanations in a page, and of positions."""
CHANGED_KINDS = ("Node", "Hardware", "Queue", "PriorityClass", "Configuration")
"""Kinds of objects whose changes are recorded. ``Hardware``: the GPUs of a node;
``Configuration``: the configuration of a service."""
ACTIONS = ("created", "changed", "deleted")
STATES = (
    "Pending",
    "Bound",
    "Running",
    "Unknown",
    "Terminating",
    "Succeeded",
    "Failed",
    "Timeout",
    "Gone",
)
"""The states of attempts, in the order of a pod's life cycle; ``Timeout``: the pod was deleted
because of the job's time limit, ``Gone``: the pod was deleted for another reason."""
_OVERDUE = "DeadlineExceeded"
"""The reason of an attempt whose pod was deleted because of the job's time limit."""
LABEL = "label:"
"""Prefix that marks a key for grouping usage as the key of a label."""
GPU_TYPE = "gpu-type"
GROUPS = ("queue", "user", "namespace", "job", "node", "day", GPU_TYPE)
"""The keys by which usage can be grouped, in addition to ``label:KEY``."""
MOST_DAYS = 400
"""Maximum number of days in a report that is grouped by day."""


class AttemptQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects attempts; an empty field selects all. ``since`` and ``until``: attempts that existed
    in this interval. ``at``: attempts that had their node and devices at this time. ``device``: the
    id of a device that was assigned. ``after``: the ``continue`` of the previous page."""

    namespace: str = ""
    job: str = ""
    uid: str = ""
    user: str = ""
    queue: str = ""
    states: tuple[str, ...] = ()
    since: Instant | None = None
    until: Instant | None = None
    at: Instant | None = None
    node: str = ""
    device: str = ""
    labels: dict[str, str] = {}
    limit: int = ATTEMPTS_PER_PAGE
    after: str = ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod of a task index, with its job and its usage.

    ``state`` is one of ``STATES``, ``reason`` and ``exit_code`` are as in ``batch.events``. Times
    are None if the state was not reached or not observed; ``allocated_at`` is the time from which
    its requests count as used. ``submitted_at`` is when it began to wait: the submission of the job
    for pods that were created before the job began, else ``created_at``, the creation of the pod.
    ``requests``: resource -> amount in the units of ``stromboli.shared.formats.units``.
    ``gpu_type``: the type of the GPUs that it held, empty without GPUs or if their node has no
    label with their type. ``numa_nodes``, ``exclusive_cpus`` (a list such as ``0-3,8``) and
    ``confirmed_devices``: what it held according to its kubelet; empty if the node has no agent, or
    if it held nothing exclusively. The seconds are requests times the time since ``allocated_at``:
    core-seconds, GiB-seconds and GPU-seconds. ``used_cpu_seconds``, ``used_gpu_seconds``: the CPU
    time of its processes, and the time in which its GPUs were busy; ``max_memory_bytes``,
    ``max_gpu_memory_bytes``: its peak use. These four are as of the last measurement; None if it
    was not measured.
    """

    namespace: str
    job: str
    uid: str
    queue: str
    user: str
    task: str
    index: int
    attempt: int
    retry_count: int
    pod: str
    pod_uid: str
    state: str
    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    node: str = ""
    submitted_at: Instant | None = None
    created_at: Instant | None = None
    allocated_at: Instant | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    requests: dict[str, int] = {}
    devices: dict[str, tuple[str, ...]] = {}
    labels: dict[str, str] = {}
    cpu_seconds: float = 0.0
    memory_gib_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpu_type: str = ""
    numa_nodes: tuple[int, ...] = ()
    exclusive_cpus: str = ""
    confirmed_devices: dict[str, tuple[str, ...]] = {}
    used_cpu_seconds: float | None = None
    max_memory_bytes: int | None = None
    used_gpu_seconds: float | None = None
    max_gpu_memory_bytes: int | None = None


class AttemptPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Attempts, the last created pod first. ``continue`` is the token of the next page, empty on
    the last page; any other page may also have fewer attempts than were requested, or none.
    ``complete``: the page includes everything that was published before the request."""

    attempts: tuple[Attempt, ...]
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects jobs; an empty field selects all. ``after``: the ``continue`` of the previous
    page."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    limit: int = MOST_JOBS
    after: str = ""


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A phase that a job entered after ``retry_count`` restarts. ``before``: the previous phase."""

    at: Instant
    phase: str
    before: str = ""
    reason: str = ""
    message: str = ""
    retry_count: int = 0


class JobRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A user's request to delete (``DeleteJob``) or change (``ChangeJob``) a job, or a command's
    action. ``entry_point``: ``rest``, ``kafka`` or ``webhook`` (kubectl and other clients of the
    API server). ``detail``: the changed fields."""

    at: Instant
    user: str
    action: str
    entry_point: str = ""
    detail: str = ""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job in the history, with its last specification, its phases and the requests of users about
    it in order. The specification is empty if the job's object was never read, and lacks values
    that the log does not contain. ``requests`` are those that admission recorded: requests made
    while it was unavailable are missing. The submission is not among them."""

    namespace: str
    name: str
    uid: str
    queue: str
    user: str
    phase: str
    reason: str
    retry_count: int
    submitted_at: Instant | None = None
    finished_at: Instant | None = None
    deleted_at: Instant | None = None
    labels: dict[str, str] = {}
    spec: dict[str, Any] = {}
    phases: tuple[PhaseChange, ...] = ()
    requests: tuple[JobRequest, ...] = ()

    @property
    def deleted_by(self) -> tuple[str, ...]:
        """The users who requested the deletion; empty if none is known."""
        return deleters(self.requests)


class JobPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Jobs, the latest submission first. ``continue`` and ``complete`` as in ``AttemptPage``."""

    jobs: tuple[JobRecord, ...]
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class EvictionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects evictions of the pods of a namespace or a job, and evictions that made room for them.
    ``job`` is the job's name, ``uid`` its uid. ``node``: the node of the evicted pods; this field
    selects only pods of the query's namespace. ``reason``: a part of the reason, such as
    ``preempt``. ``since`` and ``until``: evictions that were decided in this interval. An empty
    field selects all."""

    namespace: str = ""
    job: str = ""
    uid: str = ""
    node: str = ""
    reason: str = ""
    since: Instant | None = None
    until: Instant | None = None
    limit: int = ATTEMPTS_PER_PAGE
    after: str = ""


class Eviction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that was evicted by a decision, to make room for a PodGroup.

    ``job`` and ``uid``: the job of the pod. ``by_job`` and ``by_uid``: the job of the PodGroup,
    empty for a PodGroup of other controllers. Names and uids of another namespace than the query's
    are empty. ``refused``: why the eviction was not executed, empty if it was.
    """

    decision: str
    namespace: str
    pod: str
    pod_uid: str
    job: str
    uid: str
    by_namespace: str
    by_pod_group: str
    by_job: str
    by_uid: str
    reason: str
    refused: str = ""
    at: Instant | None = None
    node: str = ""


class EvictionPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A page of evictions, the newest one first. ``continue`` and ``complete``: see
    ``AttemptPage``."""

    evictions: tuple[Eviction, ...]
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class ChangeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects changes of the cluster by the kind (one of ``CHANGED_KINDS``) and name of the object,
    and by time. An empty field selects all."""

    kind: str = ""
    name: str = ""
    since: Instant | None = None
    until: Instant | None = None
    limit: int = ATTEMPTS_PER_PAGE
    after: str = ""


class FieldChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A field with its value before and after a change; empty if it had or has none."""

    field: str
    before: str
    after: str


class ClusterChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that was created, changed or deleted (``action``, one of ``ACTIONS``). ``fields``:
    for a change, the fields that differ. ``at``: for a change, the time at which it was
    observed."""

    at: Instant
    kind: str
    name: str
    action: str
    fields: tuple[FieldChange, ...] = ()


class ChangePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Changes, the newest first. ``continue`` and ``complete`` as in ``AttemptPage``."""

    changes: tuple[ClusterChange, ...]
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class ExplanationQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects explanations of pending PodGroups by their namespace, by the name or uid of their
    job, and by time. An empty field selects all."""

    namespace: str = ""
    job: str = ""
    uid: str = ""
    since: Instant | None = None
    until: Instant | None = None
    limit: int = MOST_EXPLANATIONS
    after: str = ""


class PastExplanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a PodGroup was pending from ``at`` on, until its next explanation. ``explained``: the
    scheduler's explanation as JSON (``PodGroupExplained``), None if nothing blocked it. While
    the kind of reason stays the same, one explanation per hour is kept, so its numbers may be up to
    an hour old."""

    at: Instant
    namespace: str
    pod_group: str
    queue: str = ""
    explained: dict[str, Any] | None = None


class QueuePosition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many PodGroups were in front of a PodGroup in its queue; one per hour is kept."""

    at: Instant
    pod_group: str
    queue: str
    in_front: int


class ExplanationPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Explanations, the newest one first. ``positions``: the queue positions of the PodGroups of
    the query's job in the same interval, the newest one first; on the first page only, and empty if
    the query names no job.
    ``continue`` and ``complete`` as in ``AttemptPage``."""

    explanations: tuple[PastExplanation, ...]
    positions: tuple[QueuePosition, ...] = ()
    continue_: str = msgspec.field(name="continue", default="")
    complete: bool = True


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selects usage within [``since``, ``until``), grouped by the keys ``by``: each is one of
    ``GROUPS`` or ``label:KEY``. An empty field selects all."""

    since: Instant
    until: Instant
    by: tuple[str, ...] = ("queue",)
    namespace: str = ""
    user: str = ""
    queue: str = ""
    labels: dict[str, str] = {}


class Usage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of a group: the pods' requests times the time for which they were allocated, in
    core-seconds, GiB-seconds and GPU-seconds. ``evicted_...``: the part used by attempts that were
    preempted, whose work was lost. ``idle_...``: the part before the containers ran, when resources
    were allocated and unused. ``used_...``: what the processes of measured attempts used; for
    memory, the peak of each attempt times its duration. ``measured_...``: the part of the usage by
    measured attempts, to compare ``used_...`` with."""

    group: dict[str, str]
    attempts: int
    cpu_seconds: float
    memory_gib_seconds: float
    gpu_seconds: float
    evicted_cpu_seconds: float
    evicted_gpu_seconds: float
    idle_cpu_seconds: float
    idle_gpu_seconds: float
    used_cpu_seconds: float = 0.0
    used_memory_gib_seconds: float = 0.0
    used_gpu_seconds: float = 0.0
    measured_cpu_seconds: float = 0.0
    measured_memory_gib_seconds: float = 0.0
    measured_gpu_seconds: float = 0.0


class QueueShare(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a queue and the queues below it used, and what the queue deserved in the same interval,
    in core-seconds and GPU-seconds: the sum over time of its ``deserved``, which may have changed
    within the interval. ``depth``: 0 at the top of the tree of queues."""

    queue: str
    depth: int
    cpu_seconds: float
    gpu_seconds: float
    deserved_cpu_seconds: float
    deserved_gpu_seconds: float


class UsageReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of each group, largest CPU usage first; if grouped by day, in the order of days.
    ``shares``: the queues that deserved CPU or GPUs, as a tree in preorder; empty unless the report
    is by queue and covers all jobs. An interval that has not ended counts up to now."""

    since: Instant
    until: Instant
    usage: tuple[Usage, ...]
    shares: tuple[QueueShare, ...] = ()
    complete: bool = True


def request_text(request: JobRequest) -> str:
    """What a user requested, in words: ``suspended by ann``."""
    what = _REQUESTED.get(request.action, request.action)
    detail = f": {request.detail}" if request.detail else ""
    return f"{what} by {request.user or 'an unknown user'}{detail}"


def deleters(requests: Iterable[JobRequest]) -> tuple[str, ...]:
    """The users who requested a deletion, the first one first."""
    return tuple(dict.fromkeys(it.user for it in requests if it.action == DELETE_JOB))


def is_begin(phase: str, retry_count: int) -> bool:
    """Whether a job begins with this phase: it leaves the phase Pending for the first time."""
    return phase != "Pending" and retry_count == 0


def submission(created: When, retry_count: int, submitted: When | None, begun: When | None) -> When:
    """The time from which an attempt waits. Pods are created when their job leaves its queue, so
    the pods that were created until the job began waited with it since its submission. Later ones
    are restarts, further indexes of an array and replicas that were added."""
    if submitted is None or retry_count or (begun is not None and created > begun):
        return created
    return min(created, submitted)


def attempt_state(observed: str, reason: str) -> str:
    """The state of an attempt, from the state of its pod (as in ``batch.events``) and its
    reason."""
    is_overdue = observed == "Gone" and reason == _OVERDUE
    return "Timeout" if is_overdue else observed


class History(Protocol):
    """Answers queries about past and running jobs."""

    async def attempts(self, query: AttemptQuery) -> AttemptPage:
        """A page of attempts. Raises InvalidError for a malformed ``after``, UnavailableError."""

    async def jobs(self, query: JobQuery) -> JobPage:
        """A page of jobs. Raises InvalidError for a malformed ``after``, UnavailableError."""

    async def evictions(self, query: EvictionQuery) -> EvictionPage:
        """A page of evictions. Raises InvalidError for a malformed ``after``, UnavailableError."""

    async def changes(self, query: ChangeQuery) -> ChangePage:
        """A page of changes. Raises InvalidError for a malformed ``after``, UnavailableError."""

    async def explanations(self, query: ExplanationQuery) -> ExplanationPage:
        """A page of explanations. Raises InvalidError for a malformed ``after``,
        UnavailableError."""

    async def usage(self, query: UsageQuery) -> UsageReport:
        """A report. Raises InvalidError for an unknown group, UnavailableError."""


def days(since: datetime, until: datetime) -> int:
    """The number of calendar days (UTC) that overlap an interval."""
    return max(0, (until.date() - since.date()).days + 1)

"""Commands of the core, as values. The shell executes them.

Every command is idempotent: after a crash, the same plan or the rest of it is executed again.
"""

import hashlib
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from stromboli.shared.api import batch
from stromboli.shared.api.kinds import Kind
from stromboli.shared.api.meta import Object

EventType = Literal["Normal", "Warning"]

COUNTS = (
    "min_available",
    "task_status_count",
    "pending",
    "running",
    "succeeded",
    "failed",
    "terminating",
    "unknown",
)
"""Status fields that are derived from pods and affect no decision. The progress of an array is not
among them: an index that ends lets the next one start.
"""


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create an object under a name that is derived from its owner.

    An existing object counts as created if it belongs to this owner (and this job version, if one
    is given) and is not being deleted. ``update``: a merge patch for that object. ``secret``: data
    that is generated on creation and added to a Secret; see ``job_plugins.PluginObject``.
    """

    kind: Kind[Any]
    namespace: str
    name: str
    body: bytes
    owner_uid: str = ""
    version: int | None = None
    update: bytes = b""
    secret: Literal["", "ssh-keys", "token"] = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Patch an object. The patch contains its preconditions: ``test`` operations or a
    resourceVersion.

    ``can_wait``: it changes only counts, so it may be delayed to save writes.
    """

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str
    patch: bytes
    patch_type: Literal["json", "merge"] = "json"
    subresource: Literal["", "status"] = ""
    can_wait: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class PatchJobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Replace a job's status, if the job is still at the resourceVersion of ``job``.

    ``follows_pods``: the write may wait until pods that do not depend on it are created.
    """

    job: batch.Job
    status: batch.JobStatus
    follows_pods: bool = False

    @property
    def can_wait(self) -> bool:
        """Whether the write may be delayed: it changes only counts, or ``follows_pods``."""
        before, after = self.job.status, self.status
        return self.follows_pods or (
            msgspec.structs.replace(after, **{name: getattr(before, name) for name in COUNTS})
            == before
        )


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the object with this uid or, for a kind that is not watched, the object with this name
    if ``owner_uid`` is its controller."""

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str = ""
    owner_uid: str = ""
    propagation: Literal["", "Background"] = ""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


REPEATED_AFTER = timedelta(minutes=10)
"""Interval at which an Event is recorded again while its condition lasts, since Events expire after
an hour."""


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object. Its name is derived from its content, so that a repeated
    Event is one object whose count grows.

    ``recurs``: each ``at`` is an occurrence. Otherwise the Event states a condition, and is counted
    again only after ``REPEATED_AFTER``.
    """

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    message: str
    at: datetime
    recurs: bool = False

    @property
    def event_name(self) -> str:
        """The name of the Event object."""
        identity = "\0".join((self.kind.plural, self.uid, self.reason, self.message))
        return f"{self.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Append an event of a job to ``batch.events``."""

    job: str
    message: msgspec.Struct
    at: datetime
    traceparent: str = ""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A dry-run create of the first pod of a task: its complete body, which names a node.

    ``likeness``: the cache key of the API server's answer, equal for pods of different jobs that
    get the same answer; empty if the answer must not be cached.
    """

    task: str
    prefix: str
    replicas: int
    body: bytes
    likeness: str = ""


class PlanPods(msgspec.Struct, frozen=True, kw_only=True):
    """Send the bodies as dry runs, and publish the responses as the plan of the job. ``node``: the
    node that the bodies name."""

    job: str
    job_uid: str
    version: int
    pod_group: str
    namespace: str
    node: str
    dry_runs: tuple[DryRun, ...]


class WithdrawPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Withdraw the plan of a PodGroup."""

    pod_group: str
    job_uid: str
    version: int


class ProbeRequest(msgspec.Struct, frozen=True):
    """A probe of a pod: tests whether a port accepts a connection or, with a path, answers an HTTP
    GET."""

    port: int
    path: str = ""
    header: tuple[str, str] = ("", "")


class RunProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Probe a pod for a flow, and put the result into the cache."""

    flow: str
    pod: str
    pod_uid: str
    host: str
    question: ProbeRequest


class ReadOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Read the owner of pods, and put its metadata into the cache."""

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str


class ReadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Read a workload with the values that the snapshot topics leave out, and put it into the
    cache."""

    kind: Kind[Any]
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class CatchUp(msgspec.Struct, frozen=True, kw_only=True):
    """Read an object whose published events are newer than the cached object. It may have been
    deleted."""

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str
    job: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


Command = (
    CatchUp
    | ReadOwner
    | ReadSpec
    | Create
    | Patch
    | PatchJobStatus
    | Delete
    | RecordEvent
    | Publish
    | PlanPods
    | WithdrawPlan
    | RunProbe
)
Stage = tuple[Command, ...]
"""Commands that may be executed concurrently, in any order."""
Plan = tuple[Stage, ...]
"""Stages in order: each begins after the previous one has succeeded."""


def follows_pods(plan: Plan) -> bool:
    """Whether a command of the plan may follow pods that are about to be created."""
    return any(isinstance(it, PatchJobStatus) and it.follows_pods for stage in plan for it in stage)


def without_counts(plan: Plan) -> Plan:
    """The plan without commands that can wait."""
    stages = (tuple(it for it in stage if not _can_wait(it)) for stage in plan)
    return tuple(stage for stage in stages if stage)


def _can_wait(command: Command) -> bool:
    return isinstance(command, Patch | PatchJobStatus) and command.can_wait


def event_about(
    kind: Kind[Any],
    about: Object,
    type_: EventType,
    reason: str,
    message: str,
    at: datetime,
    *,
    recurs: bool = False,
) -> RecordEvent:
    """An Event about an object, in its namespace."""
    return RecordEvent(
        kind=kind,
        namespace=about.metadata.namespace,
        name=about.metadata.name,
        uid=about.metadata.uid,
        type=type_,
        reason=reason,
        message=message,
        at=at,
        recurs=recurs,
    )

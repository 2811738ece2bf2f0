"""What the core wants done, as values. The shell carries them out.

Every command may be repeated: after a crash the same plan, or the rest of it, is made again.
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
"""Fields of a job's status that follow its pods, and from which nothing follows. An array's
progress is none of them: the result of an index makes room for the next one."""


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Make an object under a name that follows from its owner.

    A name that is taken counts as created only by an object of this owner (and this job version,
    if one is named) that is not going away. ``update``: a merge patch for that object then.
    ``secret``: what is made up in this moment and added to a Secret's data; see ``Addition``.
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
    """Change an object; the patch itself says by ``test`` or version what must still hold.

    ``can_wait``: it changes nothing but counts; a little later it says as much, in fewer writes.
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
    """Write a job's status, if its uid, phase and version are still those of ``job``."""

    job: batch.Job
    status: batch.JobStatus

    @property
    def can_wait(self) -> bool:
        """As a patch's."""
        before, after = self.job.status, self.status
        return (
            msgspec.structs.replace(after, **{name: getattr(before, name) for name in COUNTS})
            == before
        )


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove exactly the object of this uid or, where we do not watch the kind, the object of
    this name if ``owner_uid`` manages it."""

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
"""How often what still holds is said again, so that it does not expire (after an hour) unseen."""


class RecordEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object. Its name follows from its content, so that the same one
    is one object, whose count grows with each occurrence.

    ``recurs``: each ``at`` is an occurrence. Otherwise it states what holds, as often as it is
    looked at: it counts again only after ``REPEATED_AFTER``.
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
        """The Event's own name."""
        said = "\0".join((self.kind.plural, self.uid, self.reason, self.message))
        return f"{self.name}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Append a fact about a job to ``batch.events``."""

    job: str
    message: msgspec.Struct
    at: datetime
    traceparent: str = ""


class ProbeRequest(msgspec.Struct, frozen=True):
    """What to ask a pod: whether a port takes a connection or, with a path, answers a GET."""

    port: int
    path: str = ""
    header: tuple[str, str] = ("", "")


class RunProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a pod over the network for a flow, and take the answer into the cache."""

    flow: str
    pod: str
    pod_uid: str
    host: str
    question: ProbeRequest


class ReadOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Read the owner of pods, and take what it says into the cache."""

    kind: Kind[Any]
    namespace: str
    name: str
    uid: str


class CatchUp(msgspec.Struct, frozen=True, kw_only=True):
    """Read an object of a job of which more was told than the cache has; it may be gone."""

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
    | Create
    | Patch
    | PatchJobStatus
    | Delete
    | RecordEvent
    | Publish
    | RunProbe
)
Stage = tuple[Command, ...]
"""Commands that may be carried out at once, in any order."""
Plan = tuple[Stage, ...]
"""Stages, each after the one before it has succeeded."""


def without_counts(plan: Plan) -> Plan:
    """What of a plan cannot wait."""
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

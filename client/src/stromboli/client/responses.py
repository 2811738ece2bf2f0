"""The server's responses as Structs. Objects in them stay Kubernetes' own JSON, not decoded."""

from datetime import datetime

import msgspec

from stromboli.shared.api.meta import ObjectMeta, Part
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.messages.admission import Violation
from stromboli.shared.messages.scheduling import PodGroupExplained


class Applied(msgspec.Struct, frozen=True):
    """The result of a submitted object: ``created``, ``configured`` or ``unchanged``."""

    kind: str
    namespace: str
    name: str
    result: str
    object: msgspec.Raw
    warnings: tuple[str, ...] = ()
    """Fields of the object that have no effect, or none yet."""


class ItemResult(msgspec.Struct, frozen=True):
    """The result of one object of a bulk request: ``result`` is created, configured, unchanged,
    refused (see ``violations``, ``detail``) or failed (``status`` is an HTTP status; retry).
    """

    index: int
    result: str
    status: int = 200
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    detail: str = ""
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    """Fields of the object without effect: 10 at most."""


class BulkResult(msgspec.Struct, frozen=True):
    """The number of each result, and all results in the order of the objects. ``unread``: objects
    beyond the server's limit.
    """

    counts: dict[str, int]
    items: tuple[ItemResult, ...]
    unread: int = 0


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a collection, as of ``resource_version``; ``continue_`` is the token of the next
    page and empty on the last one.
    """

    items: tuple[msgspec.Raw, ...]
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job is pending. ``explained`` is the scheduler's explanation, None once nothing blocks
    the job; ``in_front`` are the PodGroups before it in its queue, the next one first; None if its
    position is not known. ``held``: the error that prevents the creation of its pods, as
    ``FailedCreate: ...``. ``expected``: when it is expected to start; None without a forecast.
    """

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = ()
    held: str = ""
    expected: ExpectedStart | None = None

    @property
    def reason(self) -> str:
        """``held``, else the scheduler's reason; empty if nothing blocks the job."""
        return self.held or (self.explained.message if self.explained else "")


class Me(msgspec.Struct, frozen=True):
    """The user of a client, as it is recorded on submitted objects. ``name`` is empty on a server
    without accounts, which records no user."""

    name: str
    groups: tuple[str, ...] = ()


class SchedulingInput(msgspec.Struct, frozen=True):
    """Manifests reduced to scheduling fields; ``unread``: objects that the server could not
    decode.
    """

    items: tuple[msgspec.Raw, ...]
    unread: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """An error response (RFC 9457), reduced to the fields that the client reads."""

    title: str = ""
    detail: str = ""
    violations: tuple[Violation, ...] = ()


class InvolvedObject(Part, frozen=True, kw_only=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""


class KubernetesEvent(Part, frozen=True, kw_only=True):
    """A Kubernetes Event."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: InvolvedObject = InvolvedObject()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    event_time: datetime | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """When the event last occurred; for an event that occurred once, with microseconds if they
        are known."""
        last = self.last_timestamp or self.metadata.creation_timestamp
        return self.event_time or last if self.count <= 1 else last or self.event_time

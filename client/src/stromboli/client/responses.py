"""What the server answers, as Structs. Objects in it stay Kubernetes' own JSON, undecoded."""

import msgspec

from stromboli.shared.messages.admission import Violation
from stromboli.shared.messages.scheduling import PodGroupExplained


class Applied(msgspec.Struct, frozen=True):
    """What became of a submitted object: ``created``, ``configured`` or ``unchanged``."""

    kind: str
    namespace: str
    name: str
    result: str
    object: msgspec.Raw
    warnings: tuple[str, ...] = ()
    """What of the object has no effect, or none yet."""


class ItemResult(msgspec.Struct, frozen=True):
    """What became of one object of many: ``result`` is created, configured, unchanged, refused (see
    ``violations``, ``detail``) or failed (``status`` says why as HTTP does; try it again)."""

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
    """What of the object has no effect: 10 at most."""


class BulkResult(msgspec.Struct, frozen=True):
    """How often each result came, and all results in the order of the objects. ``unread``: objects
    beyond the server's limit."""

    counts: dict[str, int]
    items: tuple[ItemResult, ...]
    unread: int = 0


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a collection, as of ``resource_version``; ``continue_`` asks for the next part and
    is empty on the last one."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Explanation(msgspec.Struct, frozen=True, rename="camel"):
    """Why a job waits. ``explained`` is what the scheduler says, None once nothing is in its way;
    ``in_front`` are the PodGroups before it in its queue, the next one first; None if its place is
    not known. ``held``: what keeps its pods from being made at all, as ``FailedCreate: ...``."""

    job: str
    phase: str
    pod_group: str
    explained: PodGroupExplained | None
    in_front: tuple[str, ...] | None = ()
    held: str = ""


class Me(msgspec.Struct, frozen=True):
    """The user of a client, as it is recorded on submitted objects. ``name`` is empty on a server
    without accounts, which records no user."""

    name: str
    groups: tuple[str, ...] = ()


class SchedulingInput(msgspec.Struct, frozen=True):
    """Manifests with what scheduling looks at; ``unread``: what the server could not read."""

    items: tuple[msgspec.Raw, ...]
    unread: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """RFC 9457, as far as we read it."""

    title: str = ""
    detail: str = ""
    violations: tuple[Violation, ...] = ()

"""The rows of the store as Structs. Times are microseconds since the Unix epoch (UTC): integers add
up exactly and have one meaning in every database."""

from datetime import UTC, datetime, timedelta

import msgspec

_START = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
SECOND = 1e6
"""Microseconds of a second."""


LONGEST_SPAN = 40
"""The largest ``AttemptRow.span`` of an attempt that has ended, 30,000 years."""
OPEN_SPAN = 64
"""``AttemptRow.span`` of an attempt that has not ended."""


LONGEST_NAME = 300
"""Maximum characters of a name that users choose freely."""
MOST = 2**63 - 1
"""The largest integer of a database."""


def text(value: str) -> str:
    """Text that every database stores: without NUL (PostgreSQL) and lone surrogates (UTF-8)."""
    if value.isascii() and "\0" not in value:
        return value
    return value.replace("\0", "�").encode("utf-8", "replace").decode()


def bounded(value: str) -> str:
    """As ``text``, for a column of an index: cut to ``LONGEST_NAME``, longer than any valid name.
    PostgreSQL refuses more than 2704 bytes in all columns of an index together."""
    return text(value[:LONGEST_NAME])


def whole(value: int) -> int:
    """The integer, limited to 64 bits."""
    return max(-MOST, min(MOST, value))


def micros(at: datetime) -> int:
    """A time as microseconds since 1970."""
    return (at - _START) // _MICROSECOND


def instant(at_us: int) -> datetime:
    """The time of microseconds since 1970."""
    return _START + at_us * _MICROSECOND


def optional_instant(at_us: int | None) -> datetime | None:
    """The time of microseconds since 1970; None stays None."""
    return None if at_us is None else instant(at_us)


class JobRow(msgspec.Struct, gc=False):
    """One job (one uid). ``spec``: JSON as submitted, without redacted values. ``begun_at``: see
    ``accounting.is_begin``. ``phase_version`` and ``queue_version``: the job's resourceVersion in
    which they were observed, so that an older record of either topic changes nothing."""

    uid: str
    namespace: str
    name: str
    queue: str = ""
    user_name: str = ""
    labels: str = "{}"
    spec: str = ""
    phase: str = ""
    retry_count: int = 0
    reason: str = ""
    submitted_at: int | None = None
    begun_at: int | None = None
    finished_at: int | None = None
    deleted_at: int | None = None
    phase_version: int = 0
    queue_version: int = 0
    spec_version: int = 0


class AttemptRow(msgspec.Struct, gc=False):
    """One pod of a task index. ``submitted_at``: the creation of the pod, or the time of the first
    event about it. ``allocated_at``: its requests count as used from then, the time of its binding
    or of the first observed state on a node. ``cpu`` in milli-cores, ``memory`` in bytes, ``gpu``
    in milli-devices; ``requests`` and ``devices`` are JSON. ``is_summed``: 1 if its usage is in the
    sums of days, see ``store.daily_usage``. ``association``: the id of its job's namespace, queue
    and user, 0 before it is stored. ``span``: it lasted less than 2**span seconds from
    ``submitted_at`` to its end; ``OPEN_SPAN`` without an end. ``gpu_type``: the type of the GPUs
    that it held, empty without GPUs or if the type is not known. ``placement``: JSON of what the
    kubelet confirmed, see ``placements.Placement``; empty if it is not known. ``used_cpu``,
    ``used_gpu``: measured milliseconds; ``max_memory``, ``max_gpu_memory``: the highest measured
    bytes; None if it was not measured, see ``pod_usage``."""

    pod_uid: str
    job_uid: str
    namespace: str
    job: str
    task: str
    task_index: int
    attempt: int
    retry_count: int
    pod: str
    state: str
    node: str = ""
    reason: str = ""
    detail: str = ""
    exit_code: int | None = None
    requests: str = "{}"
    devices: str = "{}"
    cpu: int = 0
    memory: int = 0
    gpu: int = 0
    submitted_at: int | None = None
    bound_at: int | None = None
    started_at: int | None = None
    terminating_at: int | None = None
    ended_at: int | None = None
    allocated_at: int | None = None
    is_summed: int = 0
    association: int = 0
    span: int = OPEN_SPAN
    gpu_type: str = ""
    placement: str = ""
    used_cpu: int | None = None
    max_memory: int | None = None
    used_gpu: int | None = None
    max_gpu_memory: int | None = None


def span(row: AttemptRow) -> int:
    """The value of ``AttemptRow.span``."""
    if row.ended_at is None:
        return OPEN_SPAN
    lasted_s = (row.ended_at - (row.submitted_at or row.ended_at)) // int(SECOND)
    return min(max(0, lasted_s).bit_length(), LONGEST_SPAN)


class PhaseRow(msgspec.Struct, frozen=True, gc=False):
    """A phase that a job entered. An event that is published again has another id and the same
    content, so the identity is its content."""

    job_uid: str
    retry_count: int
    phase: str
    at: int
    event_id: str
    before: str = ""
    reason: str = ""
    message: str = ""


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """A user's request about a job, which REST and a webhook may both record."""

    job_uid: str
    action: str
    subject: str
    user_name: str
    at: int
    entry_point: str = ""
    detail: str = ""


class EvictionRow(msgspec.Struct, gc=False):
    """One eviction of a decision: ``by_pod_group`` gets the resources of the pod. ``refused``: why
    it was not executed, empty otherwise. ``by_pod_group`` is empty while only the outcome of the
    eviction has been read."""

    decision: str
    pod_uid: str
    namespace: str
    pod: str
    by_pod_group: str = ""
    by_job_uid: str = ""
    reason: str = ""
    at: int | None = None
    refused: str = ""


class ObjectRow(msgspec.Struct, gc=False):
    """The last known facts (JSON) of a cluster object. ``version``: its resourceVersion with these
    facts; ``is_deleted``: 1 if the object was deleted since."""

    kind: str
    name: str
    uid: str = ""
    version: int = 0
    created_at: int = 0
    is_deleted: int = 0
    facts: str = "{}"


class ChangeRow(msgspec.Struct, frozen=True, gc=False):
    """The creation, change or deletion of a cluster object. ``fields``: JSON, a list of field name,
    value before and value after."""

    kind: str
    name: str
    uid: str
    version: int
    action: str
    at: int
    fields: str = "[]"


class ExplanationRow(msgspec.Struct, frozen=True, gc=False):
    """Why a PodGroup was pending from a time on. ``tier``: the kind of reason; ``explained``: JSON
    of the scheduler's message. Both are empty if nothing blocks it any more."""

    pod_group: str
    at: int
    queue: str = ""
    tier: str = ""
    explained: str = ""


class PositionRow(msgspec.Struct, frozen=True, gc=False):
    """How many PodGroups were in front of a PodGroup in its queue."""

    pod_group: str
    at: int
    queue: str = ""
    in_front: int = 0


class LastExplanationRow(msgspec.Struct, gc=False):
    """The last kept values of a PodGroup: the kind and time of the explanation, and the position
    with its time. ``tier`` is empty if nothing blocks the PodGroup."""

    pod_group: str
    tier: str = ""
    at: int = 0
    in_front: int = 0
    position_at: int | None = None


class ChunkRow(msgspec.Struct, frozen=True, gc=False):
    """The number of PodGroups in a chunk of a queue's order."""

    queue: str
    chunk: int
    pod_groups: int = 0


class PodUsageRow(msgspec.Struct, gc=False):
    """What the agent of a node has measured of a pod. ``counters``: JSON of
    ``pod_usage.Counters``; ``at``: the last measurement."""

    pod_uid: str
    node: str
    counters: str = "{}"
    max_memory: int = 0
    max_gpu_memory: int | None = None
    at: int = 0


class Rows(msgspec.Struct):
    """The rows that a batch of records reads and changes."""

    jobs: dict[str, JobRow] = msgspec.field(default_factory=dict)
    attempts: dict[str, AttemptRow] = msgspec.field(default_factory=dict)
    phases: dict[tuple[str, int, str, int], PhaseRow] = msgspec.field(default_factory=dict)
    evictions: dict[tuple[str, str], EvictionRow] = msgspec.field(default_factory=dict)
    objects: dict[tuple[str, str], ObjectRow] = msgspec.field(default_factory=dict)
    changes: list[ChangeRow] = msgspec.field(default_factory=list)
    requests: dict[tuple[str, str, str, str], RequestRow] = msgspec.field(default_factory=dict)
    explanations: dict[tuple[str, int], ExplanationRow] = msgspec.field(default_factory=dict)
    queue_positions: dict[tuple[str, int], PositionRow] = msgspec.field(default_factory=dict)
    last_explanations: dict[str, LastExplanationRow] = msgspec.field(default_factory=dict)
    queue_chunks: dict[tuple[str, int], ChunkRow] = msgspec.field(default_factory=dict)
    pod_usage: dict[tuple[str, str], PodUsageRow] = msgspec.field(default_factory=dict)

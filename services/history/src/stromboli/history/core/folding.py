"""The fold: an event of the log changes rows. Pure.

Three rules give each record its effect exactly once, in whatever order topics are read:

1. A record that was applied before changes nothing: times keep the value of their first event
   (the submission: the earliest time of all events), states never go back, versions only grow, and
   phases, requests and evictions are keyed by their content.
2. Records of one topic come in order. Fields that two topics contain carry the version of the
   object that they were read from, and the newer one wins.
3. Rows contain only what the records contain: values that no database stores (NUL characters,
   integers beyond 64 bits, names too long for an index) are replaced, so that no record can block
   the records after it.

An event costs O(1); the deletion of a job O(attempts in the rows of the batch).
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from stromboli.history.core import cluster_changes, explanations, placements, pod_usage
from stromboli.history.core.rows import (
    AttemptRow,
    EvictionRow,
    JobRow,
    PhaseRow,
    RequestRow,
    Rows,
    bounded,
    micros,
    span,
    text,
    whole,
)
from stromboli.shared import decoding, envelope, keys, topics
from stromboli.shared.api import kinds, meta
from stromboli.shared.api.views import accounting
from stromboli.shared.messages import admission, base, batch, node_usage, scheduling

FINISHED = frozenset({"Completed", "Failed", "Terminated", "Aborted"})
"""Phases that a job leaves only by a command."""
ORDER = {"Pending": 0, "Bound": 1, "Running": 2, "Unknown": 2, "Terminating": 3}
"""State -> its position in the life cycle; all others are final."""
END = 4
JOB_DELETED = "JobDeleted"
"""Reason of an attempt that was open when its job was deleted."""
READ = (
    topics.BATCH_EVENTS,
    topics.DECISIONS,
    topics.OUTCOMES,
    topics.EXPLANATIONS,
    topics.JOBS,
    topics.REVIEWS,
    topics.TOPOLOGY,
    topics.POD_USAGE,
    *cluster_changes.KINDS,
)
"""The topics that the history reads."""
GPU_SUFFIXES = ("/gpu", "/gpu-number", "/vgpu-number")
"""Suffixes of resource names that count whole or virtual GPUs; those of MIG instances have the
prefix below."""
MIG_PREFIX = "nvidia.com/mig-"
_TIMES = {
    "Bound": "bound_at",
    "Running": "started_at",
    "Terminating": "terminating_at",
}


class JobSnapshot(msgspec.Struct, frozen=True):
    """A Job object. ``spec``: its JSON, not decoded; ``queue``: the queue in the spec."""

    metadata: meta.ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    queue: str = ""


class _SpecQueue(msgspec.Struct, frozen=True):
    queue: str = "default"


class Event(msgspec.Struct, frozen=True):
    """A decoded record: its id, its time and its message."""

    id: str
    at: datetime
    message: msgspec.Struct


_JOBS = decoding.decoder_of(JobSnapshot)
_QUEUE = decoding.decoder_of(_SpecQueue)
_REQUESTED = base.type_name(admission.JobRequested)
_JOB_OBSERVED = base.type_name(kinds.JOBS.struct)


def decode(record: envelope.Record) -> Event | None:
    """The event of a record; None if it contains nothing for the history. Raises
    UndecodableError."""
    is_of_cluster = record.topic in (topics.TOPOLOGY, *cluster_changes.KINDS)
    if is_of_cluster or record.type == cluster_changes.SESSIONS:
        object_seen = cluster_changes.decode(record)
        return None if object_seen is None else Event(record.id, record.time, object_seen)
    if record.topic == topics.EXPLANATIONS:
        explained = explanations.decode(record)
        return None if explained is None else Event(record.id, record.time, explained)
    if record.value is None or (record.topic == topics.REVIEWS and record.type != _REQUESTED):
        return None
    if record.topic == topics.JOBS:
        if record.type != _JOB_OBSERVED:
            return None  # a stub of the monitor for a job that it could not read
        try:
            job_snapshot = decoding.decode(_JOBS, record.value)
            queue = decoding.decode(_QUEUE, job_snapshot.spec).queue
        except msgspec.DecodeError as error:
            raise record.undecodable(str(error)) from None
        snapshot = JobSnapshot(job_snapshot.metadata, job_snapshot.spec, queue)
        return Event(record.id, record.time, snapshot)
    message = envelope.decode(record)
    return None if message is None else Event(record.id, record.time, message)


class Needed(msgspec.Struct):
    """The keys of the rows that events read. ``deleted``: jobs with all their open attempts;
    ``nodes``: nodes with all their open attempts; ``queues``: all chunks of their orders;
    ``measured``: pods with all measurements of them."""

    jobs: set[str] = msgspec.field(default_factory=set)
    attempts: set[str] = msgspec.field(default_factory=set)
    evictions: set[tuple[str, str]] = msgspec.field(default_factory=set)
    deleted: set[str] = msgspec.field(default_factory=set)
    objects: set[tuple[str, str]] = msgspec.field(default_factory=set)
    pod_groups: set[str] = msgspec.field(default_factory=set)
    queues: set[str] = msgspec.field(default_factory=set)
    nodes: set[str] = msgspec.field(default_factory=set)
    measured: set[str] = msgspec.field(default_factory=set)


def needed(events: Iterable[Event]) -> Needed:
    """The keys of the rows that must be loaded before ``fold`` applies these events."""
    row_keys = Needed()
    for event in events:
        match event.message:
            case batch.TaskChanged(uid=uid, pod_uid=pod_uid, after=after, node=node):
                row_keys.jobs.add(text(uid))
                row_keys.attempts.add(text(pod_uid))
                if after == "Running":
                    row_keys.objects.add((placements.PLACEMENTS, text(node)))
                if after == "Running" or after not in ORDER:
                    row_keys.measured.add(text(pod_uid))
            case node_usage.PodUsageMeasured(pods=pods):
                uids = {text(pod.pod_uid) for pod in pods}
                row_keys.attempts |= uids
                row_keys.measured |= uids
            case batch.JobPhaseChanged(uid=uid):
                row_keys.jobs.add(text(uid))
            case batch.JobDeleted(uid=uid):
                row_keys.jobs.add(text(uid))
                row_keys.deleted.add(text(uid))
            case JobSnapshot(metadata=metadata):
                row_keys.jobs.add(text(metadata.uid))
            case admission.JobRequested(uid=uid):
                row_keys.jobs.add(bounded(uid))
            case cluster_changes.ObjectSeen() as object_seen:
                row_keys.objects.add(object_seen.key)
                if object_seen.held is not None:
                    row_keys.objects.add((placements.PLACEMENTS, object_seen.key[1]))
                    row_keys.nodes.add(object_seen.key[1])
            case scheduling.StatementDecided() as statement:
                decision = text(statement.decision or event.id)
                row_keys.evictions |= {(decision, text(it.uid)) for it in statement.evictions}
            case scheduling.DecisionAnswered() as answer:
                row_keys.evictions |= {
                    (text(answer.decision), text(it.uid)) for it in _unexecuted(answer)
                }
            case (
                scheduling.PodGroupExplained(pod_group=name)
                | explanations.NotBlocked(pod_group=name)
            ):
                row_keys.pod_groups.add(text(name))
            case scheduling.QueueOrdered(queue=queue, pod_groups=names):
                row_keys.queues.add(text(queue))
                row_keys.pod_groups.update(map(text, names))
            case _:
                pass
    return row_keys


def fold(rows: Rows, event: Event) -> None:
    """Applies one event to the rows, which contain the existing rows of the keys in ``needed``."""
    match event.message:
        case batch.TaskChanged() as message:
            _job(rows, message.job, message.uid)
            _observe(rows, message)
        case batch.JobPhaseChanged() as message:
            _enter_phase(rows, event.id, message)
        case batch.JobDeleted() as message:
            _delete(rows, message)
        case JobSnapshot() as message:
            _observe_job(rows, message)
        case admission.JobRequested() as message:
            _request(rows, event.at, message)
        case cluster_changes.ObjectSeen() as message:
            cluster_changes.apply(rows, message)
            if message.held is not None:
                placements.confirm(rows, message.key[1], message.version, message.held)
        case node_usage.PodUsageMeasured() as message:
            pod_usage.measure(rows, message)
        case scheduling.StatementDecided() as message:
            _evict(rows, event, message)
        case scheduling.DecisionAnswered() as message:
            _refuse(rows, message)
        case scheduling.PodGroupExplained() as message:
            explanations.explain(rows, micros(event.at), message)
        case explanations.NotBlocked() as message:
            explanations.unblock(rows, micros(event.at), message)
        case scheduling.QueueOrdered() as message:
            explanations.order(rows, micros(event.at), message)
        case _:
            pass


def is_gpu(resource: str) -> bool:
    """Whether a resource counts GPUs or MIG instances."""
    return resource.endswith(GPU_SUFFIXES) or resource.startswith(MIG_PREFIX)


def _job(rows: Rows, key: str, uid: str) -> JobRow:
    uid = text(uid)
    job_row = rows.jobs.get(uid)
    if job_row is None:
        namespace, _, name = text(key).partition("/")
        job_row = rows.jobs[uid] = JobRow(uid, namespace, name)
    return job_row


def _observe_job(rows: Rows, message: JobSnapshot) -> None:
    metadata = message.metadata
    job = _job(rows, metadata.key, metadata.uid)
    version = whole(metadata.version)
    if metadata.creation_timestamp is not None:
        job.submitted_at = micros(metadata.creation_timestamp)
    if not job.spec or version < job.spec_version:
        job.spec, job.spec_version = text(bytes(message.spec).decode()), version
    if version >= job.queue_version:
        job.queue_version = version
        job.queue = bounded(message.queue)
        job.labels = _json(metadata.labels or {})
        job.user_name = bounded(metadata.annotation(keys.USER) or "") or job.user_name


def _enter_phase(rows: Rows, event_id: str, message: batch.JobPhaseChanged) -> None:
    job = _job(rows, message.job, message.uid)
    at, version = micros(message.at), whole(message.object_version)
    retry_count, phase = whole(message.retry_count), text(message.after)
    key = job.uid, retry_count, phase, at
    rows.phases.setdefault(
        key,
        PhaseRow(
            *key, text(event_id), text(message.before), text(message.reason), text(message.message)
        ),
    )
    job.user_name = job.user_name or bounded(message.user)
    if job.submitted_at is None:
        job.submitted_at = at
    if accounting.is_begin(phase, retry_count) and job.begun_at is None:
        job.begun_at = at
    if version >= job.queue_version:
        job.queue, job.queue_version = bounded(message.queue), version
    if version >= job.phase_version:
        job.phase, job.phase_version = phase, version
        job.retry_count, job.reason = retry_count, text(message.reason)
        job.finished_at = at if phase in FINISHED else None


def _observe(rows: Rows, message: batch.TaskChanged) -> None:
    pod_uid = text(message.pod_uid)
    row = rows.attempts.get(pod_uid)
    if row is None:
        namespace, _, name = text(message.job).partition("/")
        row = rows.attempts[pod_uid] = AttemptRow(
            pod_uid,
            text(message.uid),
            namespace,
            name,
            text(message.task),
            whole(message.index),
            whole(message.attempt),
            whole(message.retry_count),
            text(message.pod),
            text(message.after),
        )
    if message.requests and row.requests == "{}":
        row.requests = _json(message.requests)
        row.cpu = whole(message.requests.get("cpu", 0))
        row.memory = whole(message.requests.get("memory", 0))
        row.gpu = whole(sum(it for name, it in message.requests.items() if is_gpu(name)))
    if row.gpu and message.gpu_type:
        row.gpu_type = row.gpu_type or bounded(message.gpu_type)
    at = micros(message.created_at or message.at)
    # The earliest of all events: an attempt then never has a node before its submission.
    row.submitted_at = at if row.submitted_at is None else min(row.submitted_at, at)
    rank = ORDER.get(message.after, END)
    field = _TIMES.get(message.after, "ended_at" if rank == END else "")
    if field and getattr(row, field) is None:
        setattr(row, field, micros(message.at))
    if rank >= ORDER.get(row.state, END):
        row.node = text(message.node) or row.node
        row.reason = text(message.reason) or row.reason
        row.state = accounting.attempt_state(text(message.after), row.reason)
        row.detail = text(message.detail) or row.detail
        row.devices = _json(message.devices) if message.devices else row.devices
        row.exit_code = row.exit_code if message.exit_code is None else whole(message.exit_code)
    row.allocated_at = _allocated_at(row)
    row.span = span(row)
    if message.after == "Running":
        placements.confirm_attempt(rows, row)
    if rows.pod_usage:
        pod_usage.measure_attempt(rows, row)


def _allocated_at(row: AttemptRow) -> int | None:
    """When the pod was bound to its node. If the binding was not observed: the time of the first
    observed state on a node, else of its creation, because such a pod waited for its node only
    briefly."""
    known = [at for at in (row.bound_at, row.started_at) if at is not None]
    if known:
        return min(known)
    return row.submitted_at if row.node else None


def _delete(rows: Rows, message: batch.JobDeleted) -> None:
    """Close the open attempts: the end of a pod may be published later, or never if the pod was
    deleted with its job."""
    job = _job(rows, message.job, message.uid)
    if job.deleted_at is not None:
        return
    job.deleted_at = at = micros(message.at)
    for row in rows.attempts.values():
        if row.job_uid == job.uid and row.ended_at is None:
            row.ended_at, row.reason = at, row.reason or JOB_DELETED
            row.state = accounting.attempt_state("Gone", row.reason)
            row.allocated_at = _allocated_at(row)
            row.span = span(row)


def _request(rows: Rows, at: datetime, message: admission.JobRequested) -> None:
    """Keep a request, unless the job of this uid is another one: users write the targets of
    commands, and the controller executes none for a job of another name or namespace."""
    key = (
        bounded(message.uid),
        bounded(message.action),
        bounded(message.subject),
        bounded(message.user),
    )
    job = rows.jobs.get(key[0])
    if job is not None and f"{job.namespace}/{job.name}" != text(message.job):
        return
    request = RequestRow(*key, micros(at), message.entry_point, text(message.detail))
    rows.requests.setdefault(key, request)


def _evict(rows: Rows, event: Event, message: scheduling.StatementDecided) -> None:
    decision, at = text(message.decision or event.id), micros(event.at)
    for each in message.evictions:
        row = _eviction(rows, decision, each.uid, each.namespace, each.pod)
        row.by_pod_group, row.by_job_uid = text(message.pod_group), text(message.job_uid)
        row.reason = text(each.reason)
        row.at = at if row.at is None else min(at, row.at)


def _refuse(rows: Rows, message: scheduling.DecisionAnswered) -> None:
    for each in _unexecuted(message):
        row = _eviction(rows, text(message.decision), each.uid, each.namespace, each.pod)
        row.refused = text(each.reason or each.result)


def _unexecuted(message: scheduling.DecisionAnswered) -> list[scheduling.TaskOutcome]:
    return [it for it in message.tasks if it.result != "executed"]


def _eviction(rows: Rows, decision: str, uid: str, namespace: str, pod: str) -> EvictionRow:
    key = decision, text(uid)
    eviction_row = rows.evictions.get(key)
    if eviction_row is None:
        eviction_row = rows.evictions[key] = EvictionRow(*key, text(namespace), text(pod))
    return eviction_row


def _json(value: object) -> str:
    return text(msgspec.json.encode(value, order="deterministic").decode())

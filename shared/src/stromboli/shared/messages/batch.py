"""Events of jobs and their tasks: ``batch.events``, the stable topic for integrations, and
``batch.state``, from which a new leader of the controller restores the published state."""

import msgspec

from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register


class TaskCounts(Message, frozen=True, kw_only=True):
    """The numbers of a job's pods by state."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0


@register("stromboli.batch.job_phase_changed.v1")
class JobPhaseChanged(Message, frozen=True, kw_only=True):
    """The phase of a job changed (key: the job). ``before`` is empty for a new job. ``reason``: the
    policy event that caused it; ``message``: a readable explanation. ``object_version``: the job's
    resourceVersion in which the change was observed. ``user``: the user who submitted the job, as
    admission recorded it, in its first event. ``notify``: the notifications that the job requests.
    """

    job: str
    uid: str
    queue: str
    before: str
    after: str
    at: Instant
    retry_count: int = 0
    counts: TaskCounts = TaskCounts()
    reason: str = ""
    message: str = ""
    object_version: int = 0
    user: str = ""
    notify: str = ""


@register("stromboli.batch.task_changed.v1")
class TaskChanged(Message, frozen=True, kw_only=True):
    """A task's pod is new, bound, running, terminating or has ended (key: the job).

    ``attempt``: the attempt of this task and index, from 1; 0 if not known. ``reason``: why the pod
    ends: ``Preempted``, ``NodeLost``, ``OOMKilled``, ``DeadlineExceeded``, the kubelet's reason, an
    action of its job (``RestartJob``, ``ScaledDown``, ``JobCompleted``), or ``Deleted``.
    ``devices``: resource -> ids that were assigned when it was bound. ``created_at``: the pod's
    creation time (whole seconds) in the first event about it, which need not be ``Pending`` if
    earlier states were not observed. ``object_version``: the observed resourceVersion of the pod, 0
    for a deleted one. ``detail``: explains the reason, such as the job that a pod was evicted for.
    ``requests``: the pod's requests, in the first event about it: resource -> amount in the units
    of ``stromboli.shared.formats.units``. ``notify``: for a preempted pod, the notifications that
    its job requests. ``gpu_type``: the type of the GPUs of its node, see
    ``stromboli.shared.gpu_types``; empty if it has none or it is not known.
    """

    job: str
    uid: str
    task: str
    index: int
    pod: str
    pod_uid: str
    before: str
    after: str
    at: Instant
    node: str = ""
    exit_code: int | None = None
    retry_count: int = 0
    version: int = 0
    attempt: int = 0
    reason: str = ""
    devices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    created_at: Instant | None = None
    object_version: int = 0
    detail: str = ""
    requests: dict[str, int] = msgspec.field(default_factory=dict)
    notify: str = ""
    gpu_type: str = ""


@register("stromboli.batch.job_deleted.v1")
class JobDeleted(Message, frozen=True, kw_only=True):
    """A job was deleted with all objects that it owned (key: the job)."""

    job: str
    uid: str
    at: Instant


@register("stromboli.batch.command_accepted.v1")
class CommandAccepted(Message, frozen=True, kw_only=True):
    """A user's command was recorded and is being executed (key: the job)."""

    job: str
    uid: str
    command: str
    action: str
    at: Instant


class PublishedPod(Message, frozen=True, kw_only=True):
    """The last published state of one pod of the record's task. ``is_unsure``: the append of the
    event was not acknowledged, so the event may or may not be on the topic."""

    pod_uid: str
    index: int
    pod: str
    state: str
    node: str = ""
    retry_count: int = 0
    version: int = 0
    attempt: int = 0
    reason: str = ""
    object_version: int = 0
    is_unsure: bool = False
    detail: str = ""


@register("stromboli.batch.published_job.v1")
class PublishedJob(Message, frozen=True, kw_only=True):
    """The published state of a job, and the first chunk of its task ``home_task`` (key: the job).
    ``attempts``: the highest attempt of each index of that chunk, 0 for none."""

    job: str
    uid: str
    phase: str = ""
    retry_count: int = 0
    object_version: int = 0
    has_had_pods: bool = False
    home_task: str = ""
    pods: tuple[PublishedPod, ...] = ()
    attempts: tuple[int, ...] = ()


@register("stromboli.batch.published_task_chunk.v1")
class PublishedTaskChunk(Message, frozen=True, kw_only=True):
    """The published state of a chunk of consecutive indexes of a task.

    The key is job//chunk//part//task. A chunk with more pods than a record holds has several parts;
    ``attempts`` is in part 0.
    """

    job: str
    uid: str
    task: str
    chunk: int
    part: int = 0
    pods: tuple[PublishedPod, ...] = ()
    attempts: tuple[int, ...] = ()


@register("stromboli.batch.state_position.v1")
class StatePosition(Message, frozen=True, kw_only=True):
    """The records before this one contain every event below ``events_end`` (key: ``$position``).

    ``resume_from``: the offset, at most ``events_end``, from which a new leader reads
    ``batch.events``. ``resume_epoch``: the writer's epoch at this offset. The topic ids distinguish
    both topics from later ones of the same names.
    """

    events_end: int
    resume_from: int
    resume_epoch: int
    events_topic_id: str
    state_topic_id: str

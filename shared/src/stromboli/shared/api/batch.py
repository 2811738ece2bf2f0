"""batch.volcano.sh/v1alpha1 Job and bus.volcano.sh/v1alpha1 Command."""

import msgspec

from stromboli.shared.api.meta import Int32, Int64, Object, ObjectMeta, OwnerReference, Part
from stromboli.shared.decoding import Instant


class PodTemplate(Part, frozen=True, kw_only=True):
    """A pod to be made. Its spec stays as written: we add to it and never lose a field of it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class LifecyclePolicy(Part, frozen=True, kw_only=True):
    """What to do when something happens to a task or job.

    ``timeout``: wait so long before acting. ``max_retries``: so often at most in the job's life.
    ``backoff``: pods are made again so long after a restart, twice as long after each further one
    by this policy, ``max_backoff`` at most.
    """

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: Int32 | None = None
    timeout: str | None = None
    max_retries: Int32 | None = None
    backoff: str | None = None
    max_backoff: str | None = None


class DependsOn(Part, frozen=True, kw_only=True):
    """Tasks that must be ready first."""

    name: tuple[str, ...] = ()
    iteration: str = ""


class NetworkTopology(Part, frozen=True, kw_only=True):
    """How near to each other pods must be: up to a tier by number or by name, not both."""

    mode: str = "hard"
    highest_tier_allowed: Int64 | None = None
    highest_tier_name: str = ""


class PartitionPolicy(Part, frozen=True, kw_only=True):
    """A task in equal parts that live and restart together."""

    total_partitions: Int32 = 0
    partition_size: Int32 = 0
    min_partitions: Int32 = 0
    network_topology: NetworkTopology | None = None


class VolumeSpec(Part, frozen=True, kw_only=True):
    """A claim mounted in every container: a named one, or one to be made."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: msgspec.Raw = msgspec.Raw(b"null")


MOST_PODS = 100_000
"""Of one job: ten times what the largest clusters run, and what can still be counted out. A slip of
the pen (two thousand million) would keep the controller busy for ever. Beyond it none is made."""


class ArraySpec(Part, frozen=True, kw_only=True):
    """A job whose one task runs once for each index (``0-999``, ``1,3,5-7``, ``0-100:10``).

    The task's ``replicas`` are how many indexes run at once. ``max_retries``: how often one index
    is tried again.
    """

    indexes: str = ""
    max_retries: Int32 = 0


class TaskSpec(Part, frozen=True, kw_only=True):
    """Replicas of one pod template. ``active_deadline_seconds``: how long each of its pods may
    run."""

    name: str = ""
    replicas: Int32 = 0
    min_available: Int32 | None = None
    template: PodTemplate = PodTemplate()
    policies: tuple[LifecyclePolicy, ...] = ()
    topology_policy: str = ""
    max_retry: Int32 = 0
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicy | None = None
    active_deadline_seconds: Int64 | None = None


class JobSpec(Part, frozen=True, kw_only=True):
    """A gang of tasks in a queue. ``active_deadline_seconds``: how long the job may take from its
    first running pods to its end, all tries together."""

    scheduler_name: str = ""
    min_available: Int32 = 0
    tasks: tuple[TaskSpec, ...] = ()
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: dict[str, tuple[str, ...] | None] | None = None
    queue: str = "default"
    max_retry: Int32 = 3
    ttl_seconds_after_finished: Int32 | None = None
    priority_class_name: str = ""
    min_success: Int32 | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    network_topology: NetworkTopology | None = None
    running_estimate: str = ""
    active_deadline_seconds: Int64 | None = None
    array: ArraySpec | None = None


class JobState(Part, frozen=True, kw_only=True):
    """The phase and since when."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class JobCondition(Part, frozen=True, kw_only=True):
    """A phase the job was in, with the time it entered it."""

    status: str
    last_transition_time: Instant | None = None


class TaskState(Part, frozen=True, kw_only=True):
    """Pods of one task by pod phase."""

    phase: dict[str, Int32] = msgspec.field(default_factory=dict)


class RestartedTasks(Part, frozen=True, kw_only=True):
    """What the last restart of a part of the job ends: pods of these indexes (``0-3,7``) of these
    tasks that were made before the try ``retry_count``."""

    retry_count: Int32
    tasks: dict[str, str] = msgspec.field(default_factory=dict)


class DelayedAction(Part, frozen=True, kw_only=True):
    """A policy that waits for its time. ``policy``: where it stands, as a number
    in the lists of its task or of the job (``worker/1``, ``/0``).
    ``pod`` or ``task`` say to what it happened; both may be empty."""

    policy: str
    event: str
    at: Instant
    task: str = ""
    pod: str = ""


class ArrayStatus(Part, frozen=True, kw_only=True):
    """How far an array is, as sets of indexes (``0-412,414``).

    ``retries``: index -> how often it failed, while it is under way. ``since_version``: pods of
    earlier versions of the job do not count.
    """

    succeeded: str = ""
    failed: str = ""
    retries: dict[str, Int32] = msgspec.field(default_factory=dict)
    since_version: Int32 = 0


class JobStatus(Part, frozen=True, kw_only=True):
    """What became of the job.

    ``asked_retries``: how many of ``retry_count`` cost no try: a person asked for the restart, or a
    node rejected the pod.
    ``deadline_at``: when its time is up. ``retry_at``: no pod is made again before.
    ``policy_retries``: policy -> how often it acted.
    """

    state: JobState = JobState()
    min_available: Int32 = 0
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)
    pending: Int32 = 0
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 = 0
    unknown: Int32 = 0
    version: Int32 = 0
    retry_count: Int32 = 0
    asked_retries: Int32 = 0
    running_duration: str = ""
    controlled_resources: dict[str, str] = msgspec.field(default_factory=dict)
    conditions: tuple[JobCondition, ...] = ()
    deadline_at: Instant | None = None
    retry_at: Instant | None = None
    restarted: RestartedTasks | None = None
    policy_retries: dict[str, Int32] = msgspec.field(default_factory=dict)
    delayed: tuple[DelayedAction, ...] = ()
    array: ArrayStatus | None = None


class Job(Object, frozen=True, kw_only=True):
    """A batch job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Command(Object, frozen=True, kw_only=True):
    """A one-shot wish of a user for a job or queue; its fields stand at top level."""

    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""

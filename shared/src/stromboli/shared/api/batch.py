"""batch.volcano.sh/v1alpha1 Job and bus.volcano.sh/v1alpha1 Command."""

import msgspec

from stromboli.shared.api.meta import Int32, Int64, Object, ObjectMeta, OwnerReference, Part
from stromboli.shared.decoding import Instant


class PodTemplate(Part, frozen=True, kw_only=True):
    """The template of a task's pods. Its spec is kept as raw JSON, so that no field is lost."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class LifecyclePolicy(Part, frozen=True, kw_only=True):
    """The action to take on events of a task or job.

    ``timeout``: delay before the action. ``max_retries``: maximum number of these actions.
    ``backoff``: delay before pods are created again after a restart, doubled after each further
    restart by this policy, up to ``max_backoff``.
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
    """The tasks that must be ready before this one starts."""

    name: tuple[str, ...] = ()
    iteration: str = ""


class NetworkTopology(Part, frozen=True, kw_only=True):
    """The highest topology tier that the pods may span: by number or by name, not both."""

    mode: str = "hard"
    highest_tier_allowed: Int64 | None = None
    highest_tier_name: str = ""


class PartitionPolicy(Part, frozen=True, kw_only=True):
    """Divides a task into partitions of equal size, each a sub-gang that restarts as a whole."""

    total_partitions: Int32 = 0
    partition_size: Int32 = 0
    min_partitions: Int32 = 0
    network_topology: NetworkTopology | None = None


class VolumeSpec(Part, frozen=True, kw_only=True):
    """A volume claim that is mounted in every container: an existing claim by name, or one to
    create."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: msgspec.Raw = msgspec.Raw(b"null")


MOST_PODS = 100_000
"""Maximum number of pods of one job: two thirds of the pods that Kubernetes supports in a cluster
(150,000), and still fast to enumerate. Without a limit, a typo (two billion) would keep the
controller busy indefinitely. A job above it gets no pods.
"""


class ArraySpec(Part, frozen=True, kw_only=True):
    """Makes a job an array: its only task runs once for each index (``0-999``, ``1,3,5-7``,
    ``0-100:10``).

    The task's ``replicas`` are the number of indexes that run concurrently. ``max_retries``:
    retries of one index. ``cancelled``: indexes that must not run: their running pods are deleted;
    an index that ended before keeps its result.
    """

    indexes: str = ""
    max_retries: Int32 = 0
    cancelled: str = ""


class TaskSpec(Part, frozen=True, kw_only=True):
    """Replicas of one pod template. ``active_deadline_seconds``: the run-time limit of each of its
    pods.
    """

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


class DataSet(Part, frozen=True, kw_only=True):
    """Data that all pods of the job have at ``mount_path``: the content of a URI, which a cache on
    the node holds, or an existing claim in the job's namespace.

    ``size``: the bytes to fetch, as a quantity; empty if unknown. ``digest``: ``sha256:HEX`` of the
    content's manifest, which a copy must match. ``locality``: ``Preferred`` or ``Required``.
    ``sharing``: ``Share`` or ``Spread``, empty for neither.
    """

    name: str = ""
    uri: str = ""
    persistent_volume_claim: str = ""
    mount_path: str = ""
    read_only: bool = True
    size: str | Int64 = ""
    digest: str = ""
    locality: str = "Preferred"
    sharing: str = ""


class JobSpec(Part, frozen=True, kw_only=True):
    """A gang of tasks in a queue. ``active_deadline_seconds``: the time limit from the first
    running pods to the end of the job, over all retries.
    """

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
    data_sets: tuple[DataSet, ...] = ()
    network_topology: NetworkTopology | None = None
    running_estimate: str = ""
    active_deadline_seconds: Int64 | None = None
    array: ArraySpec | None = None


class JobState(Part, frozen=True, kw_only=True):
    """The phase and the time of its last transition."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class JobCondition(Part, frozen=True, kw_only=True):
    """A phase that the job entered, and when."""

    status: str
    last_transition_time: Instant | None = None


class TaskState(Part, frozen=True, kw_only=True):
    """Pod counts of one task by pod phase."""

    phase: dict[str, Int32] = msgspec.field(default_factory=dict)


class RestartedTasks(Part, frozen=True, kw_only=True):
    """The scope of the last partial restart: pods that were created before the retry
    ``retry_count``. ``tasks``: task -> indexes of these pods (``0-3,7``).
    """

    retry_count: Int32
    tasks: dict[str, str] = msgspec.field(default_factory=dict)


class DelayedAction(Part, frozen=True, kw_only=True):
    """The pending action of a policy whose timeout has not expired. ``policy``: the task, empty for
    the job itself, and the index in its policies (``worker/1``, ``/0``). ``pod`` or ``task``: the
    subject of the event; both may be empty.
    """

    policy: str
    event: str
    at: Instant
    task: str = ""
    pod: str = ""


class ArrayStatus(Part, frozen=True, kw_only=True):
    """Progress of an array, as index sets (``0-412,414``).

    ``retries``: index -> failures so far, for active indexes. ``since_version``: pods of earlier
    versions of the job do not count.
    """

    succeeded: str = ""
    failed: str = ""
    retries: dict[str, Int32] = msgspec.field(default_factory=dict)
    since_version: Int32 = 0


class JobStatus(Part, frozen=True, kw_only=True):
    """The observed state of the job.

    ``asked_retries``: how many of ``retry_count`` do not count against the limit: restarts that a
    user requested, and pods that a node rejected. ``started_at``: the first start of the gang, from
    which ``activeDeadlineSeconds`` counts. ``retry_at``: the time before which no pod is created.
    ``policy_retries``: policy -> the number of its actions. ``dependencies_met``: the conditions on
    other jobs held once, so they are not evaluated again.
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
    started_at: Instant | None = None
    retry_at: Instant | None = None
    restarted: RestartedTasks | None = None
    policy_retries: dict[str, Int32] = msgspec.field(default_factory=dict)
    delayed: tuple[DelayedAction, ...] = ()
    array: ArrayStatus | None = None
    dependencies_met: bool = False


class Job(Object, frozen=True, kw_only=True):
    """A batch job."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Command(Object, frozen=True, kw_only=True):
    """A one-shot user command for a job or queue; its fields are at the top level."""

    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""

"""flow.volcano.sh/v1alpha1 JobFlow and JobTemplate, and batch.volcano.sh/v1alpha1 CronJob.

Specs of jobs to be made stay as written: what we do not read must reach the job all the same.
"""

import msgspec

from stromboli.shared.api.batch import TaskState
from stromboli.shared.api.meta import Int32, Object, ObjectMeta, Part
from stromboli.shared.decoding import Instant


class JobTemplateStatus(Part, frozen=True, kw_only=True):
    """The jobs made from a template, by name."""

    job_depends_on_list: tuple[str, ...] = ()


class JobTemplate(Object, frozen=True, kw_only=True):
    """A job to be made by flows: its spec."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: JobTemplateStatus = JobTemplateStatus()


class HttpHeader(Part, frozen=True, kw_only=True):
    """A header of a probe's request."""

    name: str
    value: str = ""


class HttpGet(Part, frozen=True, kw_only=True):
    """Pods of a task answer a GET with 200 to 399."""

    task_name: str = ""
    path: str = ""
    port: Int32 = 0
    http_header: HttpHeader | None = None


class TcpSocket(Part, frozen=True, kw_only=True):
    """Pods of a task take a connection."""

    port: Int32
    task_name: str = ""


class TaskStatusProbe(Part, frozen=True, kw_only=True):
    """Pods of a task are in a phase."""

    task_name: str = ""
    phase: str = ""


class Probe(Part, frozen=True, kw_only=True):
    """What a target has to show before the next job starts, instead of its completion."""

    http_get_list: tuple[HttpGet, ...] = ()
    tcp_socket_list: tuple[TcpSocket, ...] = ()
    task_status_list: tuple[TaskStatusProbe, ...] = ()


class FlowDependsOn(Part, frozen=True, kw_only=True):
    """Flows that come first."""

    targets: tuple[str, ...] = ()
    probe: Probe | None = None


class FlowPatch(Part, frozen=True, kw_only=True):
    """What a flow changes in its template's spec."""

    job_spec: msgspec.Raw = msgspec.Raw(b"{}")


class Flow(Part, frozen=True, kw_only=True):
    """One job of a JobFlow: a template's name, what comes first, what differs."""

    name: str
    depends_on: FlowDependsOn | None = None
    patch: FlowPatch | None = None


class JobFlowSpec(Part, frozen=True, kw_only=True):
    """Jobs and their order."""

    flows: tuple[Flow, ...] = ()
    job_retain_policy: str = ""


class RunningHistory(Part, frozen=True, kw_only=True):
    """A phase that a job of the flow was in."""

    state: str = ""
    start_timestamp: Instant | None = None
    end_timestamp: Instant | None = None


class FlowJobStatus(Part, frozen=True, kw_only=True):
    """What became of one job of a flow; stays when the job is gone."""

    name: str
    state: str = ""
    start_timestamp: Instant | None = None
    end_timestamp: Instant | None = None
    restart_count: Int32 = 0
    running_histories: tuple[RunningHistory, ...] = ()


class FlowCondition(Part, frozen=True, kw_only=True):
    """How far one job of a flow is."""

    phase: str = ""
    create_time: Instant | None = None
    running_duration: str = ""
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)


class FlowState(Part, frozen=True, kw_only=True):
    """Succeed, Terminating, Failed, Running or Pending; empty: nobody looked yet."""

    phase: str = ""


class JobFlowStatus(Part, frozen=True, kw_only=True):
    """Job names by state, and each job's story."""

    pending_jobs: tuple[str, ...] = ()
    running_jobs: tuple[str, ...] = ()
    failed_jobs: tuple[str, ...] = ()
    completed_jobs: tuple[str, ...] = ()
    terminated_jobs: tuple[str, ...] = ()
    un_know_jobs: tuple[str, ...] = ()
    job_status_list: tuple[FlowJobStatus, ...] = ()
    conditions: dict[str, FlowCondition] = msgspec.field(default_factory=dict)
    state: FlowState = FlowState()


class JobFlow(Object, frozen=True, kw_only=True):
    """Jobs from templates that follow one another."""

    spec: JobFlowSpec = JobFlowSpec()
    status: JobFlowStatus = JobFlowStatus()


class CronJobTemplate(Part, frozen=True, kw_only=True):
    """The job of each time: labels, annotations and spec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class CronJobSpec(Part, frozen=True, kw_only=True):
    """When jobs are made, and how many stay."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int32 | None = None
    concurrency_policy: str = "Allow"
    suspend: bool | None = None
    job_template: CronJobTemplate = CronJobTemplate()
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None


class ObjectReference(Part, frozen=True, kw_only=True):
    """Another object, as a status names it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class CronJobStatus(Part, frozen=True, kw_only=True):
    """Jobs under way, the last time that was served, and the last success."""

    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: Instant | None = None
    last_successful_time: Instant | None = None


class CronJob(Object, frozen=True, kw_only=True):
    """Makes a job at each time of a schedule."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()

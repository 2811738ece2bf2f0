"""flow.volcano.sh/v1alpha1 JobFlow and JobTemplate, and batch.volcano.sh/v1alpha1 CronJob.

Specs of child jobs are kept as raw JSON, so that fields that no Struct has reach the job.
"""

import msgspec

from stromboli.shared.api.batch import TaskState
from stromboli.shared.api.meta import Int32, Object, ObjectMeta, Part
from stromboli.shared.decoding import Instant


class JobTemplateStatus(Part, frozen=True, kw_only=True):
    """The jobs created from a template, by name."""

    job_depends_on_list: tuple[str, ...] = ()


class JobTemplate(Object, frozen=True, kw_only=True):
    """A template from which flows create jobs."""

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: JobTemplateStatus = JobTemplateStatus()


class HttpHeader(Part, frozen=True, kw_only=True):
    """A header of a probe's request."""

    name: str
    value: str = ""


class HttpGet(Part, frozen=True, kw_only=True):
    """Succeeds when the task's pods answer a GET with status 200 to 399."""

    task_name: str = ""
    path: str = ""
    port: Int32 = 0
    http_header: HttpHeader | None = None


class TcpSocket(Part, frozen=True, kw_only=True):
    """Succeeds when the task's pods accept a TCP connection."""

    port: Int32
    task_name: str = ""


class TaskStatusProbe(Part, frozen=True, kw_only=True):
    """Succeeds when the task's pods are in the given phase."""

    task_name: str = ""
    phase: str = ""


class Probe(Part, frozen=True, kw_only=True):
    """The probes that a job must pass before the jobs that depend on it start; without probes it
    must complete."""

    http_get_list: tuple[HttpGet, ...] = ()
    tcp_socket_list: tuple[TcpSocket, ...] = ()
    task_status_list: tuple[TaskStatusProbe, ...] = ()


class FlowDependsOn(Part, frozen=True, kw_only=True):
    """The jobs of the flow that must complete, or pass a probe, before a job starts."""

    targets: tuple[str, ...] = ()
    probe: Probe | None = None


class FlowPatch(Part, frozen=True, kw_only=True):
    """Changes to the template's spec."""

    job_spec: msgspec.Raw = msgspec.Raw(b"{}")


class Flow(Part, frozen=True, kw_only=True):
    """One job of a JobFlow: the template's name, its dependencies and its patch."""

    name: str
    depends_on: FlowDependsOn | None = None
    patch: FlowPatch | None = None


class JobFlowSpec(Part, frozen=True, kw_only=True):
    """The jobs of a flow and their retention."""

    flows: tuple[Flow, ...] = ()
    job_retain_policy: str = ""


class RunningHistory(Part, frozen=True, kw_only=True):
    """A phase of one of the flow's jobs, with its times."""

    state: str = ""
    start_timestamp: Instant | None = None
    end_timestamp: Instant | None = None


class FlowJobStatus(Part, frozen=True, kw_only=True):
    """The state of one job of a flow; kept after the job is deleted."""

    name: str
    state: str = ""
    start_timestamp: Instant | None = None
    end_timestamp: Instant | None = None
    restart_count: Int32 = 0
    running_histories: tuple[RunningHistory, ...] = ()


class FlowCondition(Part, frozen=True, kw_only=True):
    """The progress of one job of a flow."""

    phase: str = ""
    create_time: Instant | None = None
    running_duration: str = ""
    task_status_count: dict[str, TaskState] = msgspec.field(default_factory=dict)


class FlowState(Part, frozen=True, kw_only=True):
    """The phase of the flow: Succeed, Terminating, Failed, Running or Pending; empty before the
    first reconcile."""

    phase: str = ""


class JobFlowStatus(Part, frozen=True, kw_only=True):
    """Job names by state, and the history of each job."""

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
    """Jobs from templates, ordered by dependencies."""

    spec: JobFlowSpec = JobFlowSpec()
    status: JobFlowStatus = JobFlowStatus()


class CronJobTemplate(Part, frozen=True, kw_only=True):
    """The template of the jobs of a cron job: labels, annotations and spec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class CronJobSpec(Part, frozen=True, kw_only=True):
    """The schedule, the concurrency policy, the job template, and how many finished jobs are
    kept."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int32 | None = None
    concurrency_policy: str = "Allow"
    suspend: bool | None = None
    job_template: CronJobTemplate = CronJobTemplate()
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None


class ObjectReference(Part, frozen=True, kw_only=True):
    """A reference to another object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class CronJobStatus(Part, frozen=True, kw_only=True):
    """Active jobs, the last scheduled time that was processed, and the last success."""

    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: Instant | None = None
    last_successful_time: Instant | None = None


class CronJob(Object, frozen=True, kw_only=True):
    """Creates a job at each time of a schedule."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()

"""A workload of Airflow's executor interface as a job. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from stromboli.airflow import manifests
from stromboli.client import job
from stromboli.shared import decoding
from stromboli.shared.api import batch

MODULE = "airflow.sdk.execution_time.execute_workload"
TASK_LABEL = "stromboli.sh/airflow-task-id"
_NAME_LENGTH = 24
_ID_LENGTH = 12


class ExecutorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the section ``[stromboli]``. ``default_queue``: Airflow's default queue; the
    server chooses the queue of its tasks. ``python``: the interpreter of a task without an
    image."""

    namespace: str = "default"
    image: str = ""
    queues: dict[str, str] = msgspec.field(default_factory=dict)
    default_queue: str = "default"
    requests: dict[str, str] = msgspec.field(default_factory=lambda: {"cpu": "1"})
    priority_class: str = ""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    pod_template: dict[str, Any] = msgspec.field(default_factory=dict)
    ended_ttl_s: int = 600
    python: str = "python"


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task's ``executor_config``. ``requests`` and ``env`` are added to those of the executor;
    ``queue`` is a queue of Stromboli; ``time_limit_s``: seconds from the start of the pod."""

    image: str = ""
    requests: dict[str, str] = msgspec.field(default_factory=dict)
    gpus: int = 0
    queue: str = ""
    priority_class: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict)
    time_limit_s: int = 0


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A task instance to run. ``external_id``: the identifier that the scheduler stored with the
    state *queued*; ``document``: the workload as JSON."""

    key: manifests.TaskKey
    external_id: str
    queue: str
    document: str
    options: TaskOptions


def options(executor_config: Mapping[str, Any] | None) -> TaskOptions:
    """A task's options. Raises ValueError for unknown ones."""
    try:
        return decoding.convert(dict(executor_config or {}), TaskOptions)
    except msgspec.ValidationError as error:
        raise ValueError(f"executor_config: {error}") from None


def job_name(dag_id: str, task_id: str, external_id: str) -> str:
    """The job's name: a task that is queued again, for example after it was deferred, has a new
    external id and gets a new job."""
    readable = manifests.slug(f"{dag_id}-{task_id}", _NAME_LENGTH)
    identifier = external_id.replace("-", "").lower()[:_ID_LENGTH]
    return "-".join(part for part in ("airflow", readable, identifier) if part)


def task_job(work: Work, settings: ExecutorSettings) -> batch.Job:
    """The job of a task instance: one pod that is not started again, because Airflow's own retries
    are new task instances with new tokens."""
    image = work.options.image or settings.image
    python = "python" if image else settings.python
    base_job = job(
        job_name(work.key.dag_id, work.key.task_id, work.external_id),
        image=image or "process-node",
        command=[python, "-m", MODULE, "--json-string", work.document],
        requests={**settings.requests, **work.options.requests},
        gpus=work.options.gpus,
        env={**settings.environment, **work.options.env},
        queue=work.options.queue or _queue(work.queue, settings),
        priority_class=work.options.priority_class or settings.priority_class,
    )
    evicted = batch.LifecyclePolicy(event="PodEvicted", action="TerminateJob")
    spec = msgspec.structs.replace(
        base_job.spec,
        policies=(evicted,),
        max_retry=1,
        ttl_seconds_after_finished=settings.ended_ttl_s,
        active_deadline_seconds=work.options.time_limit_s or None,
        tasks=tuple(_templated(task, settings.pod_template) for task in base_job.spec.tasks),
    )
    metadata = msgspec.structs.replace(
        base_job.metadata,
        labels={
            manifests.DAG_LABEL: manifests.slug(work.key.dag_id, 63),
            TASK_LABEL: manifests.slug(work.key.task_id, 63),
        },
        annotations={manifests.TASK_ANNOTATION: str(work.key)},
    )
    return msgspec.structs.replace(base_job, metadata=metadata, spec=spec)


def pod_template(text: str) -> dict[str, Any]:
    """A pod template from YAML. Raises ValueError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the pod template is not YAML: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("spec"), dict):
        raise ValueError("the pod template has no spec")  # noqa: TRY004 - the text is invalid, not a type
    return document


def _queue(name: str, settings: ExecutorSettings) -> str:
    return settings.queues.get(name, "" if name == settings.default_queue else name)


def _templated(task: batch.TaskSpec, template: Mapping[str, Any]) -> batch.TaskSpec:
    """The task with the pod template: its first container is completed, the others are kept."""
    if not template:
        return task
    pod = msgspec.json.decode(task.template.spec)
    template_spec = dict(template["spec"])
    first, *others = template_spec.get("containers") or [{}]
    (own,) = pod["containers"]
    env = [*(first.get("env") or []), *own.pop("env", [])]
    container = {**first, **own, **({"env": env} if env else {})}
    spec = {**template_spec, "restartPolicy": "Never", "containers": [container, *others]}
    template_metadata = template.get("metadata") or {}
    metadata = msgspec.structs.replace(
        task.template.metadata,
        labels={**(task.template.metadata.labels or {}), **(template_metadata.get("labels") or {})}
        or None,
        annotations={
            **(template_metadata.get("annotations") or {}),
            **(task.template.metadata.annotations or {}),
        }
        or None,
    )
    merged_template = msgspec.structs.replace(
        task.template, metadata=metadata, spec=msgspec.Raw(msgspec.json.encode(spec))
    )
    return msgspec.structs.replace(task, template=merged_template)

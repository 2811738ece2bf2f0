"""``StromboliJobOperator``: a task that is a job.

1. Find the job of this attempt, or one of an earlier attempt that a lost worker has left.
2. Otherwise submit it, under a name and an idempotency key of the attempt.
3. Wait for its end: deferred in the triggerer, or in the worker with ``deferrable=False``.
4. Copy its logs to the task's log, and return its result, or raise an error with the reason.

A user who clears the task or sets its state ends the job: ``on_kill`` of this class or, while the
task is deferred, of the trigger. When the triggerer was not running, the next attempt ends it.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from stromboli.airflow import endings, manifests, outcomes
from stromboli.airflow.hook import DEFAULT_CONNECTION, StromboliHook
from stromboli.airflow.triggers import KILL_ACTIONS, JobTrigger
from stromboli.client import Client, errors, phases
from stromboli.shared.api import batch

ENDED_TTL_S = 3600
"""Time after which an ended job is deleted, unless the manifest has another one."""
LOG_LINES = 1000
NAME_KEY = "job_name"
"""The XCom with the job's name, available while it runs. The return value has the rest."""
_DEFERRED = "stromboli_deferred_job"
"""In the task's state store: the job for which an attempt was deferred. A later attempt that finds
it running follows a user's action, not the loss of a worker."""


class StromboliJobOperator(BaseOperator):  # type: ignore[misc]  # Airflow is not installed here
    """Runs a job and waits for its end.

    Either ``job``, a manifest (YAML text, dictionary or ``batch.Job``), or ``image`` with
    ``command`` and other arguments of ``stromboli.client.job``: ``replicas`` pods of which
    ``min_available`` start together, ``requests``, ``gpus``, ``env``, ``priority_class``,
    ``time_limit``, ``array``, ``working_dir``, and its ``queue`` as ``job_queue``, because
    ``queue`` is Airflow's.

    ``namespace``: by default that of the connection. ``deferrable``: wait in the triggerer, without
    a worker slot. ``start_timeout``: the task fails without another try if no pod runs by then.
    ``execution_timeout`` limits the whole wait. ``on_kill_action``: ``delete``, ``suspend`` or
    ``keep`` the job when a user clears the task or sets its state. ``final_exit_codes``: no other
    try is made after these. ``log_lines``: last lines of each pod's log in the task's log.

    Returns ``name``, ``namespace``, ``uid``, ``phase``, ``exit_codes`` and ``last_line`` of the
    first pod's log.
    """

    template_fields: Sequence[str] = (
        *("job", "image", "command", "env", "requests", "job_queue", "priority_class"),
        *("namespace", "working_dir", "array"),
    )
    template_fields_renderers: Mapping[str, str] = {"job": "yaml", "env": "json"}
    ui_color = "#f4d9c6"

    def __init__(
        self,
        *,
        job: str | Mapping[str, Any] | batch.Job | None = None,
        image: str = "",
        command: Sequence[str] = (),
        replicas: int = 1,
        min_available: int = 0,
        requests: Mapping[str, str] | None = None,
        gpus: int = 0,
        env: Mapping[str, str] | None = None,
        working_dir: str = "",
        time_limit: timedelta | None = None,
        array: str = "",
        job_queue: str = "",
        priority_class: str = "",
        namespace: str = "",
        stromboli_conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool = True,
        start_timeout: timedelta | None = None,
        on_kill_action: str = "delete",
        final_exit_codes: Sequence[int] = (),
        log_lines: int = LOG_LINES,
        **keywords: Any,
    ) -> None:
        super().__init__(**keywords)
        if (job is None) == (not image):
            raise ValueError("a StromboliJobOperator needs either job or image")
        if on_kill_action not in KILL_ACTIONS:
            raise ValueError(f"on_kill_action must be one of {', '.join(KILL_ACTIONS)}")
        is_struct = isinstance(job, batch.Job)
        self.job = manifests.parsed(job) if is_struct else job  # type: ignore[arg-type]
        self.image = image
        self.command = list(command) if not isinstance(command, str) else command
        self.replicas = replicas
        self.min_available = min_available
        self.requests = dict(requests or {})
        self.gpus = gpus
        self.env = dict(env or {})
        self.working_dir = working_dir
        self.time_limit = time_limit
        self.array = array
        self.job_queue = job_queue
        self.priority_class = priority_class
        self.namespace = namespace
        self.stromboli_conn_id = stromboli_conn_id
        self.deferrable = deferrable
        self.start_timeout = start_timeout
        self.on_kill_action = on_kill_action
        self.final_exit_codes = list(final_exit_codes)
        self.log_lines = log_lines
        self._running: tuple[str, str] | None = None

    # --- submission

    def execute(self, context: Context) -> Any:
        """Submit or find the job; defer, or wait here. Raises AirflowException."""
        key = _key(context)
        try:
            with self._hook().get_conn() as client:
                job = self._left(client, key, context) or self._submit(client, key)
        except (errors.UnreachableError, errors.UnavailableError) as error:
            raise AirflowException(str(error)) from error
        except errors.ClientError as error:
            raise AirflowFailException(str(error)) from error
        name, namespace = job.metadata.name, job.metadata.namespace or "default"
        self._running = (namespace, name)
        context["ti"].xcom_push(key=NAME_KEY, value=name)
        now = time.time()
        awaited = outcomes.Awaited(
            namespace=namespace,
            name=name,
            uid=job.metadata.uid,
            start_by=_deadline(now, self.start_timeout),
            end_by=_deadline(now, self.execution_timeout),
        )
        if self.deferrable:
            context["task_state_store"].set(_DEFERRED, name)
            fields = msgspec.to_builtins(awaited)
            trigger = JobTrigger(self.stromboli_conn_id, fields, self.on_kill_action)
            self.defer(trigger=trigger, method_name="execute_complete")
        ended = asyncio.run(outcomes.outcome(awaited, self._hook().async_client, self.log.info))
        return self.execute_complete(
            context, {**ended.fields(), "name": name, "namespace": namespace}
        )

    def _left(self, client: Client, key: manifests.TaskKey, context: Context) -> batch.Job | None:
        """The job of this attempt, or the running one of an earlier attempt of a lost worker."""
        manifest = self._manifest()
        namespace, base = self._place(manifest)
        own = _job(client, manifests.job_name(key, base), namespace)
        if own is not None:
            self.log.info("job %s of this attempt was created earlier", own.metadata.name)
            return own
        for earlier in key.earlier_tries():
            job = _job(client, manifests.job_name(earlier, base), namespace)
            if job is None or phases.phase_of(job) in phases.ENDS:
                continue
            name = job.metadata.name
            if context["task_state_store"].get(_DEFERRED) == name:
                # A deferred task loses no worker: a user cleared it, and wants a new job.
                self.log.info(
                    "job %s of the attempt %d ends: a user cleared its task",
                    name,
                    earlier.try_number,
                )
                self._end(client, namespace, name)
                continue
            self.log.info("job %s of the attempt %d is adopted", name, earlier.try_number)
            return job
        return None

    def _submit(self, client: Client, key: manifests.TaskKey) -> batch.Job:
        manifest = self._manifest()
        namespace, _ = self._place(manifest)
        job_manifest = manifests.submitted(key, manifest, namespace, ENDED_TTL_S)
        name = job_manifest["metadata"]["name"]
        submission = manifests.idempotency_key(key)
        try:
            stored = client.submit(job_manifest, namespace, idempotency_key=submission)
        except errors.ConflictError:
            stored = client.job(name, namespace)
            if stored.metadata.annotation(manifests.TASK_ANNOTATION) != str(key):
                raise
        self.log.info("job %s/%s is submitted", namespace, name)
        return stored

    def _manifest(self) -> dict[str, Any]:
        try:
            if self.job is not None:
                return manifests.parsed(self.job)
            return manifests.simple_job(
                {
                    "image": self.image,
                    "command": self.command,
                    "replicas": self.replicas,
                    "min_available": self.min_available,
                    "requests": self.requests,
                    "gpus": self.gpus,
                    "env": self.env,
                    "working_dir": self.working_dir,
                    "time_limit": self.time_limit,
                    "array": self.array,
                    "queue": self.job_queue,
                    "priority_class": self.priority_class,
                }
            )
        except ValueError as error:
            raise AirflowFailException(str(error)) from error

    def _place(self, manifest: Mapping[str, Any]) -> tuple[str, str]:
        """The namespace of the job, and the name in the manifest, empty if it has none."""
        metadata = manifest.get("metadata") or {}
        namespace = (
            metadata.get("namespace") or self.namespace or self._hook().server_settings().namespace
        )
        return str(namespace), str(metadata.get("name") or "")

    # --- the end

    def execute_complete(self, context: Context, event: dict[str, str]) -> dict[str, Any]:
        """Resume after the end of the job. Raises AirflowTaskTimeout after ``execution_timeout``,
        AirflowFailException if another try is useless, else AirflowException."""
        name, namespace, result = event["name"], event["namespace"], event["result"]
        what = f"job {namespace}/{name}"
        self._running = (namespace, name)
        try:
            with self._hook().get_conn() as client:
                if result == outcomes.ENDED:
                    return self._result(client, namespace, name)
                if result in (outcomes.TIMED_OUT, outcomes.NOT_STARTED):
                    self._end(client, namespace, name)
        except errors.NotFoundError:
            result = outcomes.GONE
        except errors.ClientError as error:
            raise AirflowException(str(error)) from error
        finally:
            self._running = None
        if result == outcomes.NOT_STARTED:
            why = event["reason"] or f"it is {event['phase']}"
            raise AirflowFailException(f"{what} did not start within {self.start_timeout}: {why}")
        if result == outcomes.TIMED_OUT:
            raise AirflowTaskTimeout(f"{what} did not end within {self.execution_timeout}")
        if result == outcomes.GONE:
            raise AirflowFailException(f"{what} was deleted")
        raise AirflowException(f"{what}: {event['reason']}")

    def _result(self, client: Client, namespace: str, name: str) -> dict[str, Any]:
        job = client.job(name, namespace)
        last_line = self._copy_logs(client, namespace, name)
        history = client.tasks(name, namespace, uid=job.metadata.uid)
        ended = endings.ending(job, history, self.final_exit_codes)
        if not ended.is_success:
            error = AirflowException if ended.is_retryable else AirflowFailException
            raise error(ended.message)
        self.log.info(ended.message)
        return {
            "name": name,
            "namespace": namespace,
            "uid": job.metadata.uid,
            "phase": ended.phase,
            "exit_codes": ended.exit_codes,
            "last_line": last_line,
        }

    def _copy_logs(self, client: Client, namespace: str, name: str) -> str:
        """Copy the pods' logs to the task's log; returns the last line of the first pod."""
        last: dict[str, str] = {}
        with contextlib.suppress(errors.NotFoundError, errors.ForbiddenError):
            for line in client.logs(name, namespace, tail_lines=self.log_lines):
                self.log.info("[%s] %s", line.pod, line.text)
                last[line.pod] = line.text
        return next(iter(last.values()), "")

    # --- a user's action, or the end of the worker

    def on_kill(self) -> None:
        """End the job of a task that runs in a worker; the trigger does it for a deferred task."""
        if self._running is None:
            return
        namespace, name = self._running
        try:
            with self._hook().get_conn() as client:
                self._end(client, namespace, name)
        except errors.ClientError as error:
            self.log.warning("job %s/%s was not ended: %s", namespace, name, error)

    def _end(self, client: Client, namespace: str, name: str) -> None:
        if self.on_kill_action == "keep":
            return
        act = client.delete if self.on_kill_action == "delete" else client.suspend
        with contextlib.suppress(errors.NotFoundError):
            act(name, namespace)
        self.log.info("job %s/%s: %s", namespace, name, self.on_kill_action)

    def _hook(self) -> StromboliHook:
        return StromboliHook(self.stromboli_conn_id)


def _key(context: Context) -> manifests.TaskKey:
    task = context["ti"]
    index = -1 if task.map_index is None else task.map_index
    return manifests.TaskKey(task.dag_id, task.run_id, task.task_id, index, task.try_number)


def _job(client: Client, name: str, namespace: str) -> batch.Job | None:
    """The job, None if there is none or it is being deleted."""
    try:
        job = client.job(name, namespace)
    except errors.NotFoundError:
        return None
    return None if job.metadata.deletion_timestamp else job


def _deadline(now: float, within: timedelta | None) -> float | None:
    return None if within is None else now + within.total_seconds()

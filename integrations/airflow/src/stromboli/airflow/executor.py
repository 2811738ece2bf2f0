"""``StromboliExecutor``: each task instance is a job in a queue.

1. The scheduler stores an external id with the state *queued*; the job's name is derived from it.
2. ``_process_workloads`` submits jobs in one request; a repetition changes nothing.
3. The pod runs the workload, which reports the task's state to Airflow's API server itself.
4. ``sync`` reports ended jobs. If a job ended and its task has not reported a state, the executor
   fails the task with the reason, and Airflow retries it.

A scheduler that ends leaves its jobs running; the next one adopts them by their names.
"""

import contextlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.configuration import conf
from airflow.executors.base_executor import BaseExecutor, get_execution_api_server_url
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancekey import TaskInstanceKey

from stromboli.airflow import endings, manifests, settings, task_jobs, tracking
from stromboli.airflow.provider import SECTION
from stromboli.client import AsyncClient, Client, errors, phases
from stromboli.shared.api import batch

LOG_LINES = 2000
INHERITED = ("AIRFLOW_HOME", "AIRFLOW_CONFIG", "PYTHONPATH", "STROM_SERVER", "XDG_STATE_HOME")
"""Variables of the scheduler that tasks without an image get: where configuration, packages, the
server and the file with its token are. No others are passed: they may be secret."""
API_URL = "AIRFLOW__CORE__EXECUTION_API_SERVER_URL"
_UNAVAILABLE = (errors.UnreachableError, errors.UnavailableError)


class StromboliExecutor(BaseExecutor):  # type: ignore[misc]  # Airflow is not installed here
    """Runs task instances as jobs. Options are in the section ``[stromboli]`` of Airflow's
    configuration, and for a task in its ``executor_config``: ``task_jobs.TaskOptions``."""

    pre_assigns_external_executor_id = True
    is_production = True

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._server = settings.ServerSettings(
            url=_option("server"),
            token_file=_option("token_file"),
            ca_file=_option("ca_file"),
            namespace=_option("namespace"),
        )
        self._settings = _executor_settings()
        self._jobs: tracking.TrackedJobs[TaskInstanceKey] = tracking.TrackedJobs()
        self._unsubmitted: dict[TaskInstanceKey, batch.Job] = {}
        self._unknown: set[str] = set()
        self._opened: Client | None = None
        self._resources = contextlib.ExitStack()
        self._watch: tracking.JobWatch | None = None

    @property
    def _client(self) -> Client:
        if self._opened is None:  # the API server makes an executor, too, to read logs
            client = Client(**self._server.client_arguments())
            self._opened = self._resources.enter_context(client)
        return self._opened

    def start(self) -> None:
        """Start the watch of the jobs in the executor's namespace."""
        self._watch = tracking.JobWatch(
            lambda: AsyncClient(**self._server.client_arguments()),
            self._settings.namespace,
            self.log.warning,
        )
        self._watch.start()

    # --- submission

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        """Submit the jobs of these workloads."""
        for workload in workload_items:
            key = workload.ti.key
            self.queued_tasks.pop(key, None)
            self.running.add(key)
            try:
                job = self._job(workload)
            except (ValueError, errors.ClientError) as error:
                self._reject(key, str(error))
                continue
            self._unsubmitted[key] = job
            self._jobs.add(job.metadata.name, key)
        self._submit()

    def _job(self, workload: Any) -> batch.Job:
        task = workload.ti
        work = task_jobs.Work(
            key=manifests.TaskKey(
                task.dag_id, task.run_id, task.task_id, task.map_index, task.try_number
            ),
            external_id=task.external_executor_id,
            queue=task.queue,
            document=workload.model_dump_json(),
            options=task_jobs.options(task.executor_config),
        )
        return task_jobs.task_job(work, self._settings)

    def _submit(self) -> None:
        """Submit the jobs that the server has not accepted yet. While it is unavailable, the next
        ``sync`` tries again."""
        if not self._unsubmitted:
            return
        keys, jobs = list(self._unsubmitted), list(self._unsubmitted.values())
        try:
            result = self._client.submit_many(jobs, self._settings.namespace)
        except _UNAVAILABLE as error:
            self.log.warning("%d jobs are not submitted yet: %s", len(jobs), error)
            return
        except errors.ClientError as error:
            for key in keys:
                self._reject(key, str(error))
            return
        for item in result.items:
            if item.result == "failed":
                self.log.warning("job %s is not submitted yet: %s", item.name, item.detail)
            elif item.result == "refused":
                reasons = [each.message for each in item.violations]
                self._reject(keys[item.index], "; ".join(reasons) or item.detail)
            else:
                del self._unsubmitted[keys[item.index]]

    def _reject(self, key: TaskInstanceKey, reason: str) -> None:
        self._forget(key)
        self.log.error("the job of %s is rejected: %s", key, reason)
        self.fail(key, reason)

    def _forget(self, key: TaskInstanceKey) -> str | None:
        self._unsubmitted.pop(key, None)
        name: str | None = self._jobs.remove(key)
        return name

    # --- the end

    def sync(self) -> None:
        """Submit the jobs that the server has not accepted yet, and report ended jobs."""
        self._submit()
        if self._watch is None:
            return
        for change in self._watch.changes():
            for fact in self._jobs.fold(change):
                self._take(fact)
        for name in sorted(self._unknown):
            self._check(name)

    def _take(self, fact: tracking.Fact) -> None:
        key = self._jobs.key(fact.name)
        if key is None or key in self._unsubmitted:
            return
        if fact.state == "unlisted":
            self._unknown.add(fact.name)
        elif fact.state == "deleted" or fact.job is None:
            self._end(key, f"job {fact.name} was deleted")
        else:
            self._report(key, fact.job)

    def _check(self, name: str) -> None:
        """Read a job that the watch did not list; report it if it has ended or does not exist."""
        key = self._jobs.key(name)
        try:
            job = None if key is None else self._client.job(name, self._settings.namespace)
        except errors.NotFoundError:
            self._end(key, f"job {name} was deleted")
        except errors.ClientError as error:
            self.log.warning("the state of job %s is unknown: %s", name, error)
            return
        else:
            if key is not None and job is not None and phases.phase_of(job) in phases.ENDS:
                self._report(key, job)
        self._unknown.discard(name)

    def _report(self, key: TaskInstanceKey, job: batch.Job) -> None:
        if phases.phase_of(job) == "Completed":
            self._forget(key)
            self.success(key)
            return
        name, namespace = job.metadata.name, self._settings.namespace
        reason = f"job {name} is {phases.phase_of(job)}"
        try:
            history = self._client.tasks(name, namespace, uid=job.metadata.uid)
            reason = endings.ending(job, history).message
        except errors.ClientError as error:
            self.log.info("the history of job %s is not known: %s", name, error)
        self._end(key, reason)

    def _end(self, key: TaskInstanceKey, reason: str) -> None:
        self._forget(key)
        self.log.info("task instance %s: %s", key, reason)
        self.fail(key, reason)

    # --- adoption, users' actions, shutdown

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Adopt the task instances whose jobs exist; returns the others."""
        return [ti for ti in tis if not self._adopt(ti)]

    def _adopt(self, ti: TaskInstance) -> bool:
        if not ti.external_executor_id:
            return False
        name = task_jobs.job_name(ti.dag_id, ti.task_id, ti.external_executor_id)
        try:
            self._client.job(name, self._settings.namespace)
        except errors.NotFoundError:
            return False
        except errors.ClientError as error:  # unknown is not missing
            self.log.warning("the state of job %s is unknown: %s", name, error)
        self.log.info("job %s of task instance %s is adopted", name, ti.key)
        self.running.add(ti.key)
        self._jobs.add(name, ti.key)
        self._unknown.add(name)  # the watch may have listed it before
        return True

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Delete the job of a task instance that was queued for too long."""
        name = self._forget(ti.key)
        self.running.discard(ti.key)
        self.queued_tasks.pop(ti.key, None)
        if name is None and ti.external_executor_id:
            name = task_jobs.job_name(ti.dag_id, ti.task_id, ti.external_executor_id)
        if name is None:
            return
        try:
            self._client.delete(name, self._settings.namespace)
        except errors.NotFoundError:
            pass
        except errors.ClientError as error:
            self.log.warning("job %s was not deleted: %s", name, error)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:
        """The log of a running task's pod; tasks without an image write to Airflow's log folder."""
        if not self._settings.image or not ti.external_executor_id:
            return [], []
        name = task_jobs.job_name(ti.dag_id, ti.task_id, ti.external_executor_id)
        namespace = self._settings.namespace
        try:
            lines = [line.text for line in self._client.logs(name, namespace, tail_lines=LOG_LINES)]
        except errors.ClientError as error:
            return [str(error)], []
        return [f"job {namespace}/{name}"], ["\n".join(lines)]

    def end(self) -> None:
        """Stop following the jobs, which continue: the next scheduler adopts them."""
        self.terminate()

    def terminate(self) -> None:
        """Stop following the jobs, which continue."""
        if self._watch is not None:
            self._watch.stop()
        self._resources.close()
        self._opened = None


def _option(name: str) -> str:
    return str(conf.get(SECTION, name, fallback="") or "")


def _json_option(name: str) -> dict[str, str]:
    """The JSON object in an option; empty without one. Raises ValueError, TypeError."""
    text = _option(name)
    json_object = json.loads(text) if text else {}
    if not isinstance(json_object, dict):
        raise TypeError(f"[{SECTION}] {name} is not a JSON object")
    return {str(key): str(value) for key, value in json_object.items()}


def _executor_settings() -> task_jobs.ExecutorSettings:
    """The executor's options in Airflow's configuration. Raises ValueError, TypeError."""
    image, template = _option("image"), _option("pod_template_file")
    inherited = (
        {} if image else {name: os.environ[name] for name in INHERITED if name in os.environ}
    )
    return task_jobs.ExecutorSettings(
        namespace=_option("namespace") or settings.DEFAULT_NAMESPACE,
        image=image,
        queues=_json_option("queues"),
        default_queue=conf.get("operators", "default_queue"),
        requests=_json_option("requests") or {"cpu": "1"},
        priority_class=_option("priority_class"),
        environment={
            **inherited,
            API_URL: get_execution_api_server_url(),
            **_json_option("environment"),
        },
        pod_template=task_jobs.pod_template(Path(template).read_text()) if template else {},
        ended_ttl_s=int(_option("ended_ttl_s") or 600),
        python=sys.executable,
    )

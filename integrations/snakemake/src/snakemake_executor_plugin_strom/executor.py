"""Snakemake's jobs as Stromboli jobs.

A job's name is derived from the working directory, the rule, the targets and the attempt, so that
Snakemake finds the jobs of an earlier run after a restart:

- A job that has not ended is adopted: a second one would write the same files.
- An ended job is deleted and submitted again, because Snakemake runs only jobs whose results are
  missing or outdated.

A job is deleted once its end has been reported to Snakemake. The log of a failed one is kept in
``.snakemake/strom_logs``.
"""

import contextlib
import os
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from snakemake_executor_plugin_strom import manifest
from stromboli.client import Client, errors, phases
from stromboli.shared.api import batch

LOGS = Path(".snakemake/strom_logs")
REPLACED_WITHIN_S = 60.0
RETRY_S = 0.2
_TRANSIENT = (errors.UnreachableError, errors.UnavailableError)


class StromExecutor(RemoteExecutor):  # type: ignore[misc]  # Snakemake is not installed here
    """Runs jobs on the server of the Python client, with its credentials."""

    def __post_init__(self) -> None:
        self._settings = self.workflow.executor_settings
        self._client = Client()
        self._names: set[str] = set()
        """Jobs that were submitted or adopted and whose end has not been reported to Snakemake."""

    def get_python_executable(self) -> str:
        """The Python interpreter in the container: that of the image, or this one without an
        image."""
        return "python" if self._settings.image else str(super().get_python_executable())

    # --- submission

    def run_job(self, job: Any) -> None:
        """Submit the job, or adopt one of an earlier run. Raises WorkflowError if the job is
        rejected."""
        batch_job = manifest.manifest(self._work(job), self._settings)
        name = batch_job.metadata.name
        try:
            self._submit(batch_job)
        except errors.ClientError as error:
            raise WorkflowError(f"job {name} was not submitted: {error}") from error
        self._names.add(name)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=name))

    def _work(self, job: Any) -> manifest.Work:
        return manifest.Work(
            directory=os.getcwd(),
            rule="group" if job.is_group() else str(job.name),  # ids of groups are random
            targets=sorted(map(str, job.get_target_spec())),
            attempt=int(job.attempt),
            threads=int(job.threads),
            resources=dict(job.resources.items()),
            command=self.format_job_exec(job),
        )

    def _submit(self, job: batch.Job) -> None:
        """Submit or adopt a job. Raises ClientError."""
        name, deadline = job.metadata.name, time.monotonic() + REPLACED_WITHIN_S
        while True:
            try:
                self._client.submit(job, self._settings.namespace)
                return
            except errors.ConflictError:
                if self._is_unfinished(name):
                    self.logger.info(f"job {name} of an earlier run is adopted")
                    return
                if time.monotonic() > deadline:
                    raise
                self._delete(name)
                time.sleep(RETRY_S)

    def _is_unfinished(self, name: str) -> bool:
        try:
            phase = phases.phase_of(self._client.job(name, self._settings.namespace))
        except errors.NotFoundError:
            return False  # it is being deleted
        return phase not in phases.FINAL

    # --- the end

    async def check_active_jobs(
        self, active_jobs: Sequence[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Report ended jobs; yield those that have not ended, or whose state is unknown."""
        for each in active_jobs:
            async with self.status_rate_limiter:
                try:
                    is_active = self._is_active(each)
                except _TRANSIENT as error:
                    self.logger.info(f"the state of job {each.external_jobid} is unknown: {error}")
                    is_active = True
            if is_active:
                yield each

    def _is_active(self, each: SubmittedJobInfo) -> bool:
        name = str(each.external_jobid)
        try:
            job = self._client.job(name, self._settings.namespace)
        except errors.NotFoundError:
            self._names.discard(name)
            self.report_job_error(each, msg=f"job {name} was deleted. ")
            return False
        phase = phases.phase_of(job)
        if phase not in phases.FINAL:
            return True
        if phase == "Completed":
            self._forget(name)
            self.report_job_success(each)
            return False
        reason = job.status.state.message
        log = self._save_log(name)
        self._forget(name)
        what = f"job {name} is {phase}" + (f": {reason}" if reason else "")
        self.report_job_error(each, msg=f"{what}. ", aux_logs=[str(log)])
        return False

    def _save_log(self, name: str) -> Path:
        LOGS.mkdir(parents=True, exist_ok=True)
        path = LOGS / f"{name}.log"
        with path.open("w") as file, contextlib.suppress(errors.NotFoundError):
            history = self._client.tasks(name, self._settings.namespace)
            for attempt in history.latest:
                file.write(f"# pod {attempt.pod}: exit code {attempt.exit_code}\n")
            for line in self._client.logs(name, self._settings.namespace):
                file.write(f"{line.text}\n")
        return path

    def _forget(self, name: str) -> None:
        self._names.discard(name)
        self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._client.delete(name, self._settings.namespace)
        except errors.NotFoundError:
            pass
        except _TRANSIENT as error:
            self.logger.info(f"job {name} could not be deleted: {error}")

    def cancel_jobs(self, active_jobs: Sequence[SubmittedJobInfo]) -> None:
        """Delete all jobs of this run; ``active_jobs`` lacks those that are being checked."""
        for name in {*self._names, *(str(each.external_jobid) for each in active_jobs)}:
            self._forget(name)

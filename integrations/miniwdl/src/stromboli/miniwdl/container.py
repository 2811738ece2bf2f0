"""A WDL task runs as a job: miniwdl's ``TaskContainer``.

The run directory has the same path for miniwdl and in pods (``container_dir``): process nodes share
the files of the machine, and on a cluster a volume is mounted. Inputs are symbolic links in the
working directory, or copies with ``[file_io] copy_input_files``.

A retry of a task has new files in the same working directory, because the paths of its inputs are
already in its command; the directory of the failed attempt is renamed.
"""

import contextlib
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

from WDL import Error, Type
from WDL._util import NOTICE_LEVEL
from WDL._util import StructuredLogMessage as _
from WDL.runtime import config
from WDL.runtime.error import Interrupted, Terminated
from WDL.runtime.task_container import TaskContainer

from stromboli.client import Client, errors, phases
from stromboli.miniwdl import manifest, ownership
from stromboli.shared.api import batch

SUBMITTED_WITHIN_S = 300.0
"""Seconds for which a submission is repeated while the server is unavailable."""
TICK_S = 0.25
"""Seconds between two checks for a signal and for lines of stderr."""
PENDING_S = 20.0
"""Seconds between two reports why a job is pending."""
SHOWN_LINES = 20
_TRANSIENT = (errors.UnreachableError, errors.UnavailableError)
_INTEGERS = {"gpuCount": "gpus", "time_minutes": "time_minutes"}
_TEXTS = ("strom_queue", "strom_priority_class")


def settings_of(cfg: config.Loader) -> manifest.Settings:
    """Section ``[strom]``. Raises WDL.Error.RuntimeError for a volume without its path."""
    section = cfg["strom"]
    root = cfg.get("file_io", "root")
    settings = manifest.Settings(
        namespace=section.get("namespace", "default"),
        queue=section.get("queue", ""),
        priority_class=section.get("priority_class", ""),
        volume_claim=section.get("volume_claim", ""),
        mount_path=section.get("mount_path", "") or ("" if root == "/" else root),
        poll_s=section.get_float("poll_s", 2.0),
    )
    if settings.volume_claim and not settings.mount_path:
        raise Error.RuntimeError(
            f"[strom] volume_claim = {settings.volume_claim}: set mount_path, or [file_io] root, "
            "to the directory in which this volume is mounted on this machine"
        )
    return settings


class StromContainer(TaskContainer):  # type: ignore[misc]  # miniwdl is not installed here
    """Runs tasks on the server of the Python client, with its credentials."""

    _client: ClassVar[Client]
    _settings: ClassVar[manifest.Settings]

    @classmethod
    def global_init(cls, cfg: config.Loader, logger: logging.Logger) -> None:
        """Delete jobs of killed runs. Raises WDL.Error.RuntimeError without a server."""
        cls._settings = settings_of(cfg)
        cls._client = Client()
        try:
            deleted = ownership.delete_abandoned(cls._client, cls._settings.namespace)
        except errors.ClientError as error:
            raise Error.RuntimeError(
                f"the jobs of namespace {cls._settings.namespace} cannot be read: {error}"
            ) from error
        logger.log(
            NOTICE_LEVEL,
            _("Stromboli", server=cls._client.url, deleted_jobs_of_killed_runs=deleted),
        )

    @classmethod
    def detect_resource_limits(cls, cfg: config.Loader, logger: logging.Logger) -> dict[str, int]:
        """No limits: a job that fits no node is pending, with the reason in the log."""
        return {"cpu": sys.maxsize, "mem_bytes": sys.maxsize}

    def __init__(self, cfg: config.Loader, run_id: str, host_dir: str) -> None:
        super().__init__(cfg, run_id, host_dir)
        self.container_dir = host_dir

    def host_work_dir(self) -> str:
        """The working directory of the command: the same for every attempt."""
        return os.path.join(self.host_dir, "work")

    def reset(self, logger: logging.Logger) -> None:
        """Keep the files of the failed attempt under another name."""
        if os.path.isdir(self.host_work_dir()):
            os.rename(self.host_work_dir(), f"{self.host_work_dir()}-failed-{self.try_counter}")
        super().reset(logger)

    def process_runtime(self, logger: logging.Logger, runtime_eval: dict[str, Any]) -> None:
        """Adds the defaults of the WDL specification, GPUs, time limit, queue and PriorityClass."""
        super().process_runtime(logger, runtime_eval)
        values = self.runtime_values
        values.setdefault("cpu", manifest.CPU)
        values.setdefault("memory_reservation", manifest.MEMORY_BYTES)
        for key, ours in _INTEGERS.items():
            if key in runtime_eval:
                values[ours] = runtime_eval[key].coerce(Type.Int()).value
        if values.get("gpu") and "gpus" not in values:
            values["gpus"] = 1
        for key in _TEXTS:
            if key in runtime_eval:
                values[key] = runtime_eval[key].coerce(Type.String()).value

    # --- one attempt

    def _run(self, logger: logging.Logger, terminating: Callable[[], bool], command: str) -> int:
        """The exit code of the command. Raises Terminated after a signal; Interrupted if the job
        ended without one; WDL.Error.RuntimeError if the job is refused or was deleted."""
        self._write_files(command)
        job = manifest.manifest(self._work(), self._settings)
        name = job.metadata.name
        with contextlib.ExitStack() as cleanup:
            cleanup.enter_context(ownership.held(self.host_dir))
            poll_stderr = cleanup.enter_context(self.poll_stderr_context(logger))
            cleanup.callback(self._delete, logger, name)
            self._submit(logger, terminating, job)
            ended = self._wait(logger, terminating, name, poll_stderr)
            poll_stderr()
            return self._exit_code(logger, ended)

    def _write_files(self, command: str) -> None:
        with open(os.path.join(self.host_dir, "command"), "w") as file:
            for key, value in self.runtime_values.get("env", {}).items():
                file.write(f"export {key}={shlex.quote(value)}\n")
            file.write(command)
        for path in (self.host_stdout_txt(), self.host_stderr_txt()):
            open(path, "w").close()
        for host_path, container_path in self.input_path_map.items():
            link = self.host_work_path(container_path).rstrip("/")
            os.makedirs(os.path.dirname(link), exist_ok=True)
            if not os.path.lexists(link):  # else it is a copy
                os.symlink(host_path.rstrip("/"), link)

    def _work(self) -> manifest.Work:
        defaults = self.cfg.get_dict("task_runtime", "defaults")
        return manifest.Work(
            task=self.run_id.removeprefix("call-"),
            directory=self.host_dir,
            attempt=self.try_counter,
            shell=self.cfg.get("task_runtime", "command_shell"),
            stdout=self.host_stdout_txt(),
            stderr=self.host_stderr_txt(),
            image=str(self.runtime_values.get("docker") or defaults["docker"]),
            runtime=self.runtime_values,
        )

    def _submit(
        self, logger: logging.Logger, terminating: Callable[[], bool], job: batch.Job
    ) -> None:
        name, deadline = job.metadata.name, time.monotonic() + SUBMITTED_WITHIN_S
        while True:
            if terminating():
                raise Terminated()
            try:
                self._client.submit(job, self._settings.namespace)
            except (errors.ConflictError, *_TRANSIENT) as error:
                if time.monotonic() > deadline:
                    raise Error.RuntimeError(f"job {name} was not submitted: {error}") from error
                logger.info(_("submission is repeated", job=name, reason=str(error)))
                # The job is of a killed run, or of our submission whose response was lost.
                if isinstance(error, errors.ConflictError):
                    self._delete(logger, name)
                time.sleep(TICK_S)
            except errors.ClientError as error:
                raise Error.RuntimeError(f"job {name} was not submitted: {error}") from error
            else:
                logger.log(NOTICE_LEVEL, _("job", name=name, namespace=self._settings.namespace))
                return

    def _wait(
        self,
        logger: logging.Logger,
        terminating: Callable[[], bool],
        name: str,
        poll_stderr: Callable[[], None],
    ) -> batch.Job:
        """The job once it has ended."""
        asked_at = explained_at = time.monotonic()
        reason = ""
        with contextlib.ExitStack() as running:
            is_running = False
            while True:
                if terminating():
                    raise Terminated()
                poll_stderr()
                now = time.monotonic()
                if now >= asked_at:
                    asked_at = now + self._settings.poll_s
                    job = self._job(logger, name)
                    phase = phases.phase_of(job) if job else ""
                    if job and phase in phases.FINAL:
                        return job
                    if phase == "Running" and not is_running:
                        is_running = True
                        running.enter_context(self.task_running_context())
                    if phase == "Pending" and now >= explained_at + PENDING_S:
                        explained_at = now
                        reason = self._report_pending(logger, name, reason)
                time.sleep(min(TICK_S, self._settings.poll_s))

    def _job(self, logger: logging.Logger, name: str) -> batch.Job | None:
        """The job; None while the server is unavailable."""
        try:
            return self._client.job(name, self._settings.namespace)
        except errors.NotFoundError:
            raise Error.RuntimeError(f"job {name} was deleted") from None
        except _TRANSIENT as error:
            logger.warning(_("the state of a job is unknown", job=name, reason=str(error)))
            return None

    def _report_pending(self, logger: logging.Logger, name: str, reported: str) -> str:
        """Log why the job is pending if the reason is new; returns the last reason."""
        try:
            reason = self._client.explanation(name, self._settings.namespace).reason
        except errors.ClientError:
            return reported
        if reason and reason != reported:
            logger.log(NOTICE_LEVEL, _("job is pending", job=name, reason=reason))
        return reason

    # --- its end

    def _exit_code(self, logger: logging.Logger, ended: batch.Job) -> int:
        phase, reason = phases.phase_of(ended), ended.status.state.message
        if phase == "Completed":
            return 0
        name = ended.metadata.name
        code = self._attempt_code(name)
        self.failure_info = {"job": name, "phase": phase, "reason": reason}
        if not os.path.getsize(self.host_stderr_txt()):
            self._show_pod_output(logger, name)
        message = f"job {name} is {phase}" + (f": {reason}" if reason else "")
        if phase == "Terminated":
            raise Error.RuntimeError(message)
        if code is None:
            raise Interrupted(message)
        return code

    def _attempt_code(self, name: str) -> int | None:
        try:
            attempts = self._client.tasks(name, self._settings.namespace).latest
        except errors.ClientError:
            return None
        codes = [each.exit_code for each in attempts if each.exit_code is not None]
        return codes[-1] if codes else None

    def _show_pod_output(self, logger: logging.Logger, name: str) -> None:
        """Log what the pod wrote before or instead of the command, such as the error about a
        missing path."""
        with contextlib.suppress(errors.ClientError):
            namespace = self._settings.namespace
            for line in self._client.logs(name, namespace, tail_lines=SHOWN_LINES):
                logger.error(_("output of the pod", job=name, line=line.text))

    def _delete(self, logger: logging.Logger, name: str) -> None:
        try:
            self._client.delete(name, self._settings.namespace)
        except errors.NotFoundError:
            pass
        except errors.ClientError as error:
            logger.error(_("job remains; delete it", job=name, reason=str(error)))

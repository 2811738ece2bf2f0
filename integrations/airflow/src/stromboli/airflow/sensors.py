"""``StromboliJobSensor``: waits for a job that another program submitted."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from airflow.sdk import BaseSensorOperator, Context
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)

from stromboli.airflow import outcomes
from stromboli.airflow.hook import DEFAULT_CONNECTION, StromboliHook
from stromboli.airflow.triggers import JobTrigger
from stromboli.client import errors, phases


class StromboliJobSensor(BaseSensorOperator):  # type: ignore[misc]  # Airflow is not installed here
    """Succeeds once the job ``job_name`` is in one of ``phases``, by default ``Completed``.

    Fails, without another try, if the job ends in another phase or does not exist; with
    ``soft_fail`` the task is skipped instead. ``deferrable``: wait in the triggerer; otherwise
    read the job every ``poke_interval``. ``timeout`` is in seconds, as for all sensors.
    """

    template_fields: Sequence[str] = ("job_name", "namespace")
    template_fields_renderers: Mapping[str, str] = {}
    ui_color = "#f4d9c6"

    def __init__(
        self,
        *,
        job_name: str,
        namespace: str = "",
        phases: Sequence[str] = ("Completed",),
        stromboli_conn_id: str = DEFAULT_CONNECTION,
        deferrable: bool = True,
        **keywords: Any,
    ) -> None:
        super().__init__(**keywords)
        self.job_name = job_name
        self.namespace = namespace
        self.phases = list(phases)
        self.stromboli_conn_id = stromboli_conn_id
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Defer the wait to the triggerer, or poke in the worker until the wait ends."""
        if not self.deferrable:
            return super().execute(context)
        awaited = outcomes.Awaited(
            namespace=self._namespace(),
            name=self.job_name,
            phases=tuple(self.phases),
            end_by=time.time() + self.timeout,
        )
        trigger = JobTrigger(self.stromboli_conn_id, msgspec.to_builtins(awaited))
        return self.defer(trigger=trigger, method_name="execute_complete")  # raises TaskDeferred

    def execute_complete(self, context: Context, event: dict[str, str]) -> None:
        """Resume after the end of the wait. Raises AirflowException."""
        if event["result"] == outcomes.TIMED_OUT:
            if self.soft_fail:
                raise AirflowSkipException(self._text(event["phase"]))
            raise AirflowSensorTimeout(self._text(event["phase"]))
        if event["result"] == "error":
            raise AirflowException(event["reason"])
        self._is_there(event["phase"] if event["result"] == outcomes.ENDED else "deleted")

    def poke(self, context: Context) -> bool:
        """Whether the job is in one of the phases. Raises AirflowFailException."""
        try:
            with StromboliHook(self.stromboli_conn_id).get_conn() as client:
                phase = phases.phase_of(client.job(self.job_name, self._namespace()))
        except errors.NotFoundError:
            phase = "deleted"
        except errors.ClientError as error:
            self.log.info("the state of job %s is unknown: %s", self.job_name, error)
            return False
        return self._is_there(phase)

    def _is_there(self, phase: str) -> bool:
        if phase in self.phases:
            return True
        if phase in phases.FINAL or phase == "deleted":
            error = AirflowSkipException if self.soft_fail else AirflowFailException
            raise error(self._text(phase))
        return False

    def _text(self, phase: str) -> str:
        job = f"job {self._namespace()}/{self.job_name}"
        return f"{job} is {phase or 'unknown'}, not {' or '.join(self.phases)}"

    def _namespace(self) -> str:
        return self.namespace or StromboliHook(self.stromboli_conn_id).server_settings().namespace

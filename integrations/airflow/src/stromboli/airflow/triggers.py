"""The trigger of a deferred task: waits in the triggerer for the end of a job."""

from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from stromboli.airflow import outcomes
from stromboli.airflow.hook import StromboliHook
from stromboli.client import errors
from stromboli.shared import decoding

KILL_ACTIONS = ("delete", "suspend", "keep")


class JobTrigger(BaseTrigger):  # type: ignore[misc]  # Airflow is not installed here
    """Fires once with the fields of an ``Outcome``. A triggerer that restarts watches again.

    ``on_kill_action``: what happens to the job when a user clears the task or sets its state.
    """

    def __init__(
        self, stromboli_conn_id: str, awaited: dict[str, Any], on_kill_action: str = "keep"
    ) -> None:
        super().__init__()
        self.stromboli_conn_id = stromboli_conn_id
        self.awaited = awaited
        self.on_kill_action = on_kill_action
        self._hook = StromboliHook(stromboli_conn_id)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments of a copy in the triggerer."""
        return (
            "stromboli.airflow.triggers.JobTrigger",
            {
                "stromboli_conn_id": self.stromboli_conn_id,
                "awaited": self.awaited,
                "on_kill_action": self.on_kill_action,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end of the job; yields one event, which has the result ``error`` after a
        permanent error."""
        awaited = decoding.convert(self.awaited, outcomes.Awaited)
        try:
            outcome = await outcomes.outcome(awaited, self._hook.async_client, self.log.info)
        except errors.ClientError as error:
            outcome = outcomes.Outcome(result="error", reason=str(error))
        yield TriggerEvent(
            {**outcome.fields(), "name": awaited.name, "namespace": awaited.namespace}
        )

    async def on_kill(self) -> None:
        """Delete or suspend the job: a user cleared the task or set its state."""
        if self.on_kill_action == "keep":
            return
        awaited = decoding.convert(self.awaited, outcomes.Awaited)
        async with await self._hook.async_client() as client:
            act = client.delete if self.on_kill_action == "delete" else client.suspend
            await act(awaited.name, awaited.namespace)
        self.log.info("job %s: %s", awaited.name, self.on_kill_action)

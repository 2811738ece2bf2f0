"""Time passes while a reconcile is planned and executed: what becomes due during it is handled
later.
"""

import asyncio
import weakref
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from services.controller.tests.support import service_harness
from stromboli.shared.api import kinds
from stromboli.shared.runtime import runtime
from stromboli.testkit.builders import make_explanation, make_job, make_node, make_task


class SlowSteps:
    """A clock by which every task's work lasts longer than a second from its first look on."""

    def __init__(self) -> None:
        self._begun: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    def __call__(self) -> datetime:
        task = asyncio.current_task()
        assert task is not None
        lasted = timedelta(seconds=1.1) if task in self._begun else timedelta()
        self._begun.add(task)
        return runtime.utc_now() + lasted


async def test_pods_get_their_pending_reason_however_long_a_reconcile_takes(tmp_path: Path) -> None:
    """Their time is between the plan and the computation of the next due time."""
    async with service_harness.set_up(tmp_path, None) as harness:
        await harness.submit(make_node())
        harness.clock = SlowSteps()  # type: ignore[method-assign]
        async with harness.controller():
            await harness.submit(make_job(tasks=[make_task(replicas=1)]))
            await harness.answer(await harness.enqueue(await harness.group("default/j1")))
            (pod,) = await harness.pods(1)
            group = await harness.group("default/j1")
            await harness.explain(
                make_explanation(
                    group.metadata.key,
                    group.metadata.uid,
                    phase="Inqueue",
                    tier="resources",
                    message="no room",
                )
            )
            sent = await harness.until(
                kinds.PODS, pod.metadata.key, lambda it: bool(it.status.conditions)
            )
    assert [it.message for it in sent.status.conditions] == ["no room"]

"""A controller that takes over immediately, before it has read all that the previous
one had read.
"""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from services.controller.tests.support import service_harness
from stromboli.controller.core.store import unmanaged_pod_index
from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.testkit import builders, records
from stromboli.testkit.doubles import takeover_bus


async def test_what_is_not_read_yet_is_not_absent(tmp_path: Path) -> None:
    """The PodGroup of an unmanaged pod is read before the pod, without which it would be
    deleted."""
    async with service_harness.set_up(tmp_path, faults=None) as harness:
        inner = harness.bus

        async def last_words() -> None:
            await harness.submit(builders.make_pod("alone"))
            pod = await harness.until(kinds.PODS, "default/alone", lambda _: True)
            name = unmanaged_pod_index.PREFIX + pod.metadata.uid
            made = {keys.MADE_FOR_PODS: "true"}
            await harness.submit(builders.make_pod_group(name, annotations=made))
            sent: set[str] = set()
            wanted = (topics.PODS, topics.POD_GROUPS)
            async with contextlib.aclosing(inner.materialize(wanted)) as batches:
                async for batch in batches:
                    sent |= {record.key for record in batch.records}
                    if sent >= {"default/alone", f"default/{name}"}:
                        return

        bus: Any = takeover_bus.TakeoverBus(inner, "controller", "default/alone", last_words)
        harness.bus = bus
        await harness.submit(builders.make_queue())

        async def read_on() -> None:
            await bus.has_opened.wait()
            for _ in range(100):
                await asyncio.sleep(0.001)  # time to go wrong
            bus.is_late = False
            await harness.submit(builders.make_queue("more"))

        reading = asyncio.create_task(read_on())
        async with asyncio.timeout(records.DEADLINE_S), harness.controller():
            await reading
            pod = await harness.until(
                kinds.PODS,
                "default/alone",
                lambda pod: bool(pod.metadata.annotation(keys.GROUP_NAME)),
            )
            key = f"default/{pod.metadata.annotation(keys.GROUP_NAME)}"
            group = await harness.until(kinds.POD_GROUPS, key, lambda _: True)
    assert group.status.phase == "Inqueue", "it was not made anew"

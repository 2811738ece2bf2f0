"""The kill tests can turn red: without one rule of idempotence, the same kill breaks promises."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from stromboli.testkit.parts.part import Part
from stromboli.testkit.real_system import Service
from tests.faults.support import workload
from tests.faults.support.observed_system import ObservedSystem

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

JOBS = 4
WITHIN_S = 30.0


class RandomNameController(Part):
    """The controller without the rule, in the place of another."""

    name = "random-name-controller"
    port_count = 0

    def __init__(self, state: Path, instead_of: Service) -> None:
        super().__init__(state)
        self._instead_of = instead_of

    def command(self) -> list[str]:
        program = Path(__file__).parent / "support/random_name_controller.py"
        return [sys.executable, str(program)]

    def environment(self) -> dict[str, str]:
        return self._instead_of.environment()

    async def is_ready(self) -> bool:
        return await self._instead_of.is_ready()


async def test_random_pod_names_are_detected_as_duplicates_after_a_kill(
    live_system: ObservedSystem, tmp_path: Path
) -> None:
    """The checker finds no violation until the process is killed, and then names the duplicates."""
    namespace = await live_system.enter("rule-off")
    controller = live_system.system.services["controller"]
    random_names = RandomNameController(tmp_path, controller)
    url, rng = live_system.system.url, random.Random("rule-off")
    await controller.stop()
    try:
        await random_names.start()
        await workload.submit(url, namespace, workload.jobs(rng, JOBS))
        await live_system.all_end(namespace, JOBS, WITHIN_S)
        assert live_system.broken(namespace) == []

        await workload.submit(url, namespace, [workload.long_job("long")])
        await live_system.history.until(lambda: _running(live_system, namespace) == 1, WITHIN_S)
        assert _duplicate_pods(live_system, namespace) == []
        await random_names.kill()
        await random_names.start()
        await live_system.history.until(
            lambda: bool(_duplicate_pods(live_system, namespace)), WITHIN_S
        )
    finally:
        await random_names.stop()
        await controller.start()
        await workload.delete(url, namespace, "long")
        await live_system.history.until(lambda: len(live_system.jobs(namespace)) == JOBS, WITHIN_S)


def _running(live_system: ObservedSystem, namespace: str) -> int:
    return sum(workload.phase(job) == "Running" for job in live_system.jobs(namespace))


def _duplicate_pods(live_system: ObservedSystem, namespace: str) -> list[str]:
    return [line for line in live_system.broken(namespace) if " are both " in line]

"""The kill tests can turn red: without one rule of idempotence, the same kill breaks promises."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from stromboli.testkit.parts.part import Part
from stromboli.testkit.real_system import Service
from tests.faults import workload
from tests.faults.scene import Scene

pytestmark = [pytest.mark.real, pytest.mark.asyncio(loop_scope="session")]

JOBS = 4
WITHIN_S = 30.0


class NamelessController(Part):
    """The controller without the rule, in the place of another."""

    name = "nameless-controller"
    port_count = 0

    def __init__(self, state: Path, instead_of: Service) -> None:
        super().__init__(state)
        self._instead_of = instead_of

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("nameless_controller.py"))]

    def environment(self) -> dict[str, str]:
        return self._instead_of.environment()

    async def is_ready(self) -> bool:
        return await self._instead_of.is_ready()


async def test_without_names_that_follow_from_the_job_a_kill_is_found_out(
    scene: Scene, tmp_path: Path
) -> None:
    """As long as the process lives the checker is content; after its kill it names the twins."""
    namespace = await scene.enter("rule-off")
    controller = scene.system.services["controller"]
    nameless = NamelessController(tmp_path, controller)
    url, rng = scene.system.url, random.Random("rule-off")
    await controller.stop()
    try:
        await nameless.start()
        await workload.submit(url, namespace, workload.jobs(rng, JOBS))
        await scene.all_end(namespace, JOBS, WITHIN_S)
        assert scene.broken(namespace) == []

        await workload.submit(url, namespace, [workload.long_job("long")])
        await scene.history.until(lambda: _running(scene, namespace) == 1, WITHIN_S)
        assert _twins(scene, namespace) == []
        await nameless.kill()
        await nameless.start()
        await scene.history.until(lambda: bool(_twins(scene, namespace)), WITHIN_S)
    finally:
        await nameless.stop()
        await controller.start()
        await workload.delete(url, namespace, "long")
        await scene.history.until(lambda: len(scene.jobs(namespace)) == JOBS, WITHIN_S)


def _running(scene: Scene, namespace: str) -> int:
    return sum(workload.phase(job) == "Running" for job in scene.jobs(namespace))


def _twins(scene: Scene, namespace: str) -> list[str]:
    return [line for line in scene.broken(namespace) if " are both " in line]

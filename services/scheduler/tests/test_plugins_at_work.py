"""Third-party plugins in the running service: they decide, and a failing one is reported."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support.service_driver import (
    DEADLINE_S,
    NODE,
    SETTINGS,
    OtherServices,
    at_least,
    bound,
    gang,
    serving,
)
from services.scheduler.tests.test_plugin_isolation import Odd
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders

FILE = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: odd
"""


def endless(*given: Any) -> Any:
    while True:
        pass


def failing(*given: Any) -> Any:
    raise RuntimeError("odd")


SHORT_S = 0.5
"""CPU seconds after which a call that never returns is stopped. A call of the other plugins takes
milliseconds, and is stopped on a busy machine only if it waits for ``WAIT_FACTOR`` times as long: a
session without ``gang`` or ``predicates`` would bind nothing."""


def with_odd(
    tmp_path: Path, register: Callable[[session.Session], None], deadline_s: float = DEADLINE_S
) -> dict[str, Any]:
    """A third-party plugin, and a configuration that contains it."""
    path = tmp_path / "c.yaml"
    path.write_text(FILE)
    settings = msgspec.structs.replace(
        SETTINGS, configuration=str(path), plugin_deadline_s=deadline_s
    )
    return {"settings": settings, "registry": plugins.Registry({"odd": lambda: Odd(register)})}


async def warned(health: runtime.Health, fact: str) -> str:
    """The reported problems, when there are any."""
    async with asyncio.timeout(DEADLINE_S):
        while fact not in health.warnings:  # noqa: ASYNC110 - health tells of readiness only
            await asyncio.sleep(0.001)
    return health.warnings[fact]


def explained(record: envelope.Record) -> messages.PodGroupExplained:
    message = envelope.decode(record)
    assert isinstance(message, messages.PodGroupExplained)
    return message


async def test_a_plugin_of_another_distribution_decides(
    other_services: OtherServices, tmp_path: Path
) -> None:
    def register(ssn: session.Session) -> None:
        allowed = [name == "n2" for name in ssn.nodes.names]

        def check(task: Any, view: Any) -> list[extension_points.Check]:
            mask = ssn.nodes.labelled.usable & allowed
            return [
                extension_points.Check(
                    "not n2", extension_points.Code.UNRESOLVABLE, mask[view.rows]
                )
            ]

        ssn.add_predicate(check, extension_points.Scope.STATIC)

    await other_services.see(
        builders.make_queue(), NODE, builders.make_node("n2", cpu="4"), *gang(2)
    )
    await other_services.sync()
    async with serving(other_services.bus, **with_odd(tmp_path, register)):
        decisions = await other_services.until(topics.DECISIONS, at_least(1))
    statement = envelope.decode(decisions[0])
    assert isinstance(statement, messages.StatementDecided)
    assert [bind.node for bind in statement.binds] == ["n2", "n2"]


async def test_a_gang_for_which_a_plugin_fails_is_held_back_with_the_reason(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """The service stays ready, and other gangs continue."""

    def register(ssn: session.Session) -> None:
        ssn.add_job_order(lambda left, right: 0)
        ssn.add_job_ready(lambda job, task: failing() if job.name == "g1" else 0)

    await other_services.see(builders.make_queue(), NODE, *gang(1), *gang(1, "g2"))
    await other_services.sync()
    async with serving(other_services.bus, **with_odd(tmp_path, register)) as health:
        records = await other_services.until(topics.EXPLANATIONS, at_least(1))
        warning = await warned(health, "plugins")
        assert bound(await other_services.until(topics.DECISIONS, at_least(1))) == ["g2-w-0"]
        assert health.is_ready
    assert warning == "odd: default/g1 is not scheduled: RuntimeError: odd"
    assert explained(records[0]).tier == "unknown"
    assert "plugin odd failed: RuntimeError: odd" in explained(records[0]).message


@pytest.mark.parametrize("point", ["add_allocatable", "add_predicate", "add_job_enqueueable"])
async def test_a_plugin_that_never_returns_is_left_out_and_named_in_explanations(
    other_services: OtherServices, tmp_path: Path, point: str
) -> None:
    """Gangs that it would have restricted are pending, before or after they enter their queue."""

    def register(ssn: session.Session) -> None:
        getattr(ssn, point)(endless)

    at_admission = builders.make_pod_group("g2", 1, phase="Pending", min_resources={"cpu": "1"})
    await other_services.see(builders.make_queue(), NODE, *gang(1), at_admission)
    await other_services.sync()
    async with serving(other_services.bus, **with_odd(tmp_path, register, SHORT_S)) as health:
        records = await other_services.until(topics.EXPLANATIONS, at_least(1))
        assert await warned(health, "plugins") == "odd: left out: it did not respond in time"
        assert health.is_ready
    assert "odd" in explained(records[0]).message
    assert "it did not respond in time" in explained(records[0]).message


async def test_a_score_that_never_ends_costs_a_second_attempt_and_nothing_else(
    other_services: OtherServices, tmp_path: Path
) -> None:
    def register(ssn: session.Session) -> None:
        ssn.add_node_order(endless)

    await other_services.see(builders.make_queue(), NODE, *gang(2))
    await other_services.sync()
    async with serving(other_services.bus, **with_odd(tmp_path, register, SHORT_S)) as health:
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
        assert await warned(health, "plugins") == "odd: left out: it did not respond in time"
    assert bound(decisions) == ["g1-w-0", "g1-w-1"]


@pytest.mark.parametrize("point", ["add_queue_share", "add_gauges"])
async def test_a_plugin_that_fails_in_explanations_is_left_out(
    other_services: OtherServices, tmp_path: Path, point: str
) -> None:
    """Explanations and dashboards call plugins as well: the service continues without them."""

    def register(ssn: session.Session) -> None:
        ssn.add_job_enqueueable(lambda job: extension_points.REJECT)
        getattr(ssn, point)(failing)

    at_admission = builders.make_pod_group("g2", 1, phase="Pending", min_resources={"cpu": "1"})
    await other_services.see(builders.make_queue(), NODE, at_admission)
    await other_services.sync()
    async with serving(other_services.bus, **with_odd(tmp_path, register)) as health:
        assert await warned(health, "plugins") == "odd: left out: RuntimeError: odd"
        records = await other_services.until(topics.EXPLANATIONS, at_least(1))
        assert health.is_ready
    assert explained(records[0]).pod_group == "default/g2"

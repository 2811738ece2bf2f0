"""The history between a real broker and a real PostgreSQL."""

import uuid
from collections.abc import AsyncIterator

import pytest

from services.history.tests.support import events
from services.history.tests.test_service import Facts, publish, running, states
from stromboli.shared.bus import kafka
from stromboli.shared.bus import port as bus_port
from stromboli.testkit.parts import postgres, real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]


@pytest.fixture
async def bus(real_parts: real.RealParts) -> AsyncIterator[bus_port.Bus]:
    settings = kafka.KafkaSettings(
        bootstrap=(real_parts.kafka_bootstrap,), cluster_name=f"history-{uuid.uuid4().hex[:8]}"
    )
    async with kafka.KafkaBus(settings) as opened:
        yield opened


async def test_events_of_a_real_broker_are_in_a_real_database_once(
    bus: bus_port.Bus, postgres_server: postgres.Server
) -> None:
    """Also those that were published while the service did not run."""
    url = postgres_server.new_database()
    facts = Facts()
    async with running(bus, url, facts) as service:
        await publish(bus, events.phase("Pending", 0, 1), events.task("Pending", 0))
        assert await states(service) == ["Pending"]
    await publish(bus, events.task("Bound", 1, node="n1"), events.task("Pending", 0, "p2"))
    async with running(bus, url, facts) as again:
        assert sorted(await states(again)) == ["Bound", "Pending"]
        await publish(bus, events.task("Succeeded", 9, node="n1"))
        assert sorted(await states(again)) == ["Pending", "Succeeded"]

"""The embedded log keeps the log's promises."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stromboli.embedded.bus import EmbeddedBus, log
from stromboli.shared import topics
from stromboli.shared.bus import port
from stromboli.shared.runtime import runtime
from stromboli.testkit.contracts import bus, external_writers


class TestEmbeddedBus(bus.BusContract, external_writers.ExternalWritersContract):
    @pytest.fixture
    def bus_factory(self, tmp_path: Path) -> bus.BusFactory:
        embedded_buses: dict[str, EmbeddedBus] = {}
        self.ahead = timedelta()

        def clock() -> datetime:
            return runtime.utc_now() + self.ahead

        def make(cluster_name: str = "a") -> port.Bus:
            if cluster_name not in embedded_buses:
                embedded_buses[cluster_name] = EmbeddedBus(
                    tmp_path / f"{cluster_name}.log", cluster_name, clock=clock
                )
            return embedded_buses[cluster_name]

        return make

    async def put(
        self,
        open_bus: port.Bus,
        key: str,
        headers: dict[str, str],
        value: bytes | None,
        topic: topics.Topic = topics.SUBMISSIONS,
    ) -> None:
        assert isinstance(open_bus, EmbeddedBus)
        record = log.PendingRecord(topic, key, lambda _: (headers, value))
        await open_bus._log.append([record])

    async def recreate(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        assert isinstance(open_bus, EmbeddedBus)
        await open_bus.recreate(topic)

    async def compact(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        assert isinstance(open_bus, EmbeddedBus)
        self.ahead += timedelta(milliseconds=2 * topics.COMPACTION_LAG_MS)
        await open_bus.compact()

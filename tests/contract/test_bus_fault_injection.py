"""A log in disorder is still a log: late and at its own pace on each topic, but for repetitions and
errors it keeps every promise. See ``embedded/tests/test_fault_injection.py`` for those."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from stromboli.embedded.bus import EmbeddedBus, log
from stromboli.embedded.fault_injection import FaultRates, FaultyBus
from stromboli.shared import topics
from stromboli.shared.bus import port
from stromboli.shared.runtime import runtime
from stromboli.testkit.contracts import bus, external_writers


@pytest.mark.parametrize("seed", range(3))
class TestFaultInjectedBus(bus.BusContract, external_writers.ExternalWritersContract):
    @pytest.fixture
    def bus_factory(self, tmp_path: Path, seed: int) -> bus.BusFactory:
        self.logs: dict[str, EmbeddedBus] = {}
        self.ahead = timedelta()

        def clock() -> datetime:
            return runtime.utc_now() + self.ahead

        def make(cluster_name: str = "a") -> port.Bus:
            log = self.logs.setdefault(
                cluster_name,
                EmbeddedBus(tmp_path / f"{cluster_name}.log", cluster_name, clock=clock),
            )
            return FaultyBus(
                log, seed, FaultRates(repeat=0, unavailable=0, lost=0, cut=0, longest_delay_s=0.002)
            )

        return make

    async def put(
        self,
        open_bus: port.Bus,
        key: str,
        headers: dict[str, str],
        value: bytes | None,
        topic: topics.Topic = topics.SUBMISSIONS,
    ) -> None:
        record = log.PendingRecord(topic, key, lambda _: (headers, value))
        await self.logs["a"]._log.append([record])

    async def recreate(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        await self.logs["a"].recreate(topic)

    async def compact(self, open_bus: port.Bus, topic: topics.Topic) -> None:
        self.ahead += timedelta(milliseconds=2 * topics.COMPACTION_LAG_MS)
        await self.logs["a"].compact()

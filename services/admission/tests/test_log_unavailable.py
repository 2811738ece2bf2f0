"""The log may be unavailable for a while: admission continues with its cache and then reads what
was appended.
"""

import asyncio
import contextlib
from pathlib import Path

from services.admission.tests.test_entry_points import opened
from services.admission.tests.test_other_schedulers import VOLCANO, RivalCluster
from stromboli.admission import service
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.shared.runtime import runtime
from stromboli.testkit.doubles import interruptible_bus


async def test_admission_reads_missed_records_after_an_outage_of_the_log(tmp_path: Path) -> None:
    health = runtime.Health("admission")
    async with EmbeddedBus(tmp_path / "log.db") as log, opened(tmp_path) as entry_points:
        bus = interruptible_bus.InterruptibleBus(log)
        rival_cluster = RivalCluster(entry_points, await log.open_writer("monitor", "test"), health)
        work = service.serve(
            entry_points.admission, AdmissionSettings(), bus, health, runtime.utc_now, "test"
        )
        serving = asyncio.create_task(work)
        await rival_cluster.competitors()
        async with bus.cut(folds=1):
            while "cache" not in health.warnings:
                assert not serving.done(), serving.exception()
                await asyncio.sleep(0.001)
            assert health.is_ready, f"what is known answers still: {health.problems}"
        await rival_cluster.competitors(VOLCANO)
        assert "cache" not in health.warnings
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def test_admission_without_a_log_reports_the_reason_and_stops_on_request(
    tmp_path: Path,
) -> None:
    health = runtime.Health("admission")
    async with EmbeddedBus(tmp_path / "log.db") as log, opened(tmp_path) as entry_points:
        bus = interruptible_bus.InterruptibleBus(log)
        bus.writes_cut.set()
        work = service.serve(
            entry_points.admission, AdmissionSettings(), bus, health, runtime.utc_now, "test"
        )
        serving = asyncio.create_task(work)
        while "log" not in health.problems:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.001)
        assert health.problems["log"] == "write the log: cut off"
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled()

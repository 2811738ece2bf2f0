"""Flows and crons in lists, and the next times of a cron in its zone."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from stromboli.console.core import workload_rows
from stromboli.console.core.workload_rows import CronEntry, FlowEntry
from stromboli.shared.api import kinds

NOW = datetime(2026, 3, 27, 12, tzinfo=UTC)


def cron(name: str, schedule: str, zone: str = "", **spec: Any) -> CronEntry:
    metadata = {"name": name, "namespace": "vision", "creationTimestamp": "2026-01-01T00:00:00Z"}
    known = {"schedule": schedule, **({"timeZone": zone} if zone else {}), **spec}
    document = {"metadata": metadata, "spec": known}
    return CronEntry(kinds.CRON_JOBS.decode(msgspec.json.encode(document)))


def flow(name: str, phase: str, **status: Any) -> FlowEntry:
    document = {
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {"flows": [{"name": "a"}, {"name": "b"}]},
        "status": {"state": {"phase": phase}, **status},
    }
    return FlowEntry(kinds.JOB_FLOWS.decode(msgspec.json.encode(document)))


def test_the_cron_that_is_due_next_is_first_and_a_suspended_one_last() -> None:
    cron_entries = [
        cron("off", "* * * * *", suspend=True),
        cron("daily", "0 0 * * *"),
        cron("hourly", "0 * * * *"),
    ]
    rows = workload_rows.cron_rows(cron_entries, "", NOW)
    assert [it.name for it in rows] == ["hourly", "daily", "off"]
    assert rows[-1].next is None


def test_next_times_show_the_clock_of_the_crons_zone() -> None:
    """In Berlin clocks change on the 29th: the same hour there is another one in UTC."""
    times = workload_rows.next_times(cron("n", "0 8 * * *", "Europe/Berlin").cron, NOW)
    assert times[0] == (datetime(2026, 3, 28, 7, tzinfo=UTC), "Sat 2026-03-28 08:00 CET")
    assert times[1] == (datetime(2026, 3, 29, 6, tzinfo=UTC), "Sun 2026-03-29 08:00 CEST")
    assert len(times) == workload_rows.NEXT_TIMES


def test_a_cron_that_is_suspended_or_invalid_has_no_next_times() -> None:
    assert workload_rows.next_times(cron("n", "0 8 * * *", suspend=True).cron, NOW) == []
    assert workload_rows.next_times(cron("n", "0 8 * * *", "Nowhere/None").cron, NOW) == []


def test_flows_that_run_are_first_and_count_their_jobs() -> None:
    failed = {"failedJobs": ["x"], "terminatedJobs": ["y"]}
    flow_entries = [
        flow("done", "Succeed"),
        flow("bad", "Failed", **failed),
        flow("live", "Running"),
    ]
    rows = workload_rows.flow_rows(flow_entries, "")
    assert rows[0].name == "live"
    assert {it.name: (it.jobs, it.failed) for it in rows}["bad"] == (2, 2)


def test_a_search_looks_in_the_namespace_too() -> None:
    assert len(workload_rows.flow_rows([flow("night", "Running")], "VISION/nig")) == 1
    assert workload_rows.flow_rows([flow("night", "Running")], "day") == []

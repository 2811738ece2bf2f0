"""Attempts and usage of the history: filters from the URL, rows."""

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.console import templating
from stromboli.console.core import past_attempts, usage_rows
from stromboli.shared.api.views import accounting

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUERIES = st.dictionaries(
    st.sampled_from(
        ["namespace", "job", "user", "state", "since", "until", "after", "by", "then", "label"]
    ),
    st.one_of(st.text(max_size=300), st.dates().map(str)),
)


ATTEMPT = accounting.Attempt(
    namespace="vision",
    job="train",
    uid="u",
    queue="gold",
    user="ann",
    task="worker",
    index=0,
    attempt=1,
    retry_count=0,
    pod="train-worker-0",
    pod_uid="p",
    state="Succeeded",
    submitted_at=NOON,
    allocated_at=NOON + timedelta(seconds=5),
    started_at=NOON + timedelta(seconds=7),
    ended_at=NOON + timedelta(seconds=67),
    cpu_seconds=5400.0,
)


def test_what_the_kubelet_confirmed_is_beside_what_was_decided() -> None:
    attempt = msgspec.structs.replace(
        ATTEMPT,
        numa_nodes=(0, 1),
        exclusive_cpus="0-3",
        confirmed_devices={"nvidia.com/gpu": ("GPU-a",)},
    )
    rows = past_attempts.rows([ATTEMPT, attempt], NOON)
    assert [it.confirmed for it in rows] == ["", "NUMA 0,1; cpu 0-3; gpu GPU-a"]


def test_what_an_attempt_used_is_beside_its_time() -> None:
    measured = msgspec.structs.replace(
        ATTEMPT, used_cpu_seconds=1620.0, max_memory_bytes=3 * 2**29, requests={"memory": 2**31}
    )
    rows = past_attempts.rows([ATTEMPT, measured], NOON)
    assert [it.used for it in rows] == ["", "CPU 30 %, memory 1.5 GiB (75 %)"]


def test_used_shares_of_groups_count_what_was_measured() -> None:
    first = msgspec.structs.replace(used(1000.0), used_cpu_seconds=90.0, measured_cpu_seconds=100.0)
    second = msgspec.structs.replace(
        used(1000.0), used_cpu_seconds=60.0, measured_cpu_seconds=200.0
    )
    filters = usage_rows.read_filters({}, NOON)
    found = [it.used for it in usage_rows.rows([first, second, used(5.0)], filters)]
    assert found == [("90 %", "", ""), ("30 %", "", ""), ("", "", "")]
    assert usage_rows.total([first, second, used(5.0)]).used == ("50 %", "", "")


def used(cpu_seconds: float, gpu_seconds: float = 0.0, **group: str) -> accounting.Usage:
    return accounting.Usage(
        group=group,
        attempts=2,
        cpu_seconds=cpu_seconds,
        memory_gib_seconds=0.0,
        gpu_seconds=gpu_seconds,
        evicted_cpu_seconds=0.0,
        evicted_gpu_seconds=0.0,
        idle_cpu_seconds=0.0,
        idle_gpu_seconds=0.0,
    )


def test_both_days_of_an_interval_belong_to_it() -> None:
    query = {"since": "2026-02-01", "until": "2026-02-28"}
    for found in (
        past_attempts.read_filters(query).query(),
        usage_rows.read_filters(query, NOON).query(),
    ):
        assert found.since == datetime(2026, 2, 1, tzinfo=UTC)
        assert found.until == datetime(2026, 3, 1, tzinfo=UTC)


def test_usage_is_of_today_and_the_30_days_before_by_default() -> None:
    filters = usage_rows.read_filters({}, NOON)
    assert (filters.since, filters.until) == ("2026-01-30", "2026-03-01")
    assert filters.query().by == ("queue",)


@given(QUERIES)
def test_any_query_is_read_and_written_back_alike(query: dict[str, str]) -> None:
    """A URL may be edited by hand; what it selects can always be asked of REST."""
    attempts = past_attempts.read_filters(query)
    written = templating.query(attempts, after=attempts.after).removeprefix("?")
    assert past_attempts.read_filters(dict(parse_qsl(written, keep_blank_values=True))) == attempts
    attempts.query()
    usage_rows.read_filters(query, NOON).query()


def test_a_changed_filter_leads_to_the_first_page() -> None:
    filters = past_attempts.read_filters({"job": "train", "after": "token"})
    assert templating.query(filters, state="Failed") == "?job=train&state=Failed"


def test_usage_is_grouped_by_each_key_once() -> None:
    query = {"by": "user", "then": "user", "label": "team"}
    assert usage_rows.read_filters(query, NOON).query().by == ("user", "label:team")
    assert usage_rows.read_filters({"by": "moon"}, NOON).query().by == ("queue",)


def test_an_attempt_shows_how_long_it_waited_ran_and_what_it_used() -> None:
    (row,) = past_attempts.rows([ATTEMPT], NOON)
    assert (row.waited, row.ran, row.cpu_hours, row.gpu_hours) == ("5s", "60s", "1.50", "")


@pytest.mark.parametrize(
    ("usage", "percents"),
    [
        ([used(3600, queue="a"), used(1200, queue="b")], [75.0, 25.0]),
        ([used(3600, queue="a"), used(0, 7200, queue="b")], [0.0, 100.0]),
        ([used(0, queue="a")], [0.0]),
    ],
)
def test_shares_are_those_of_gpus_where_some_were_used(
    usage: list[accounting.Usage], percents: list[float]
) -> None:
    filters = usage_rows.read_filters({}, NOON)
    assert [it.percent for it in usage_rows.rows(usage, filters)] == percents


def test_the_sum_has_groups_that_are_not_shown() -> None:
    usage = [used(36, queue=str(number)) for number in range(usage_rows.MOST_ROWS + 1)]
    assert len(usage_rows.rows(usage, usage_rows.read_filters({}, NOON))) == usage_rows.MOST_ROWS
    total = usage_rows.total(usage)
    assert (total.attempts, total.hours[0]) == (2 * len(usage), "5.01")


def test_a_group_leads_to_its_attempts() -> None:
    filters = usage_rows.read_filters({"since": "2026-02-01", "until": "2026-02-28"}, NOON)
    attempt_filters = usage_rows.rows([used(1, user="ann", day="2026-02-03")], filters)[
        0
    ].attempts_of
    assert attempt_filters is not None
    assert templating.query(attempt_filters) == "?user=ann&since=2026-02-03&until=2026-02-03"
    of_label = msgspec.structs.replace(used(1), group={"label:team": "x"})
    (row,) = usage_rows.rows([of_label], filters)
    assert row.attempts_of is None


def test_last_month_is_a_whole_month_also_at_the_beginning_of_a_year() -> None:
    ranges = {it.name: it for it in usage_rows.ranges(datetime(2027, 1, 1, 9, tzinfo=UTC))}
    assert (ranges["Last month"].since, ranges["Last month"].until) == ("2026-12-01", "2026-12-31")
    assert (ranges["This month"].since, ranges["This month"].until) == ("2027-01-01", "2027-01-01")
    assert ranges["7 days"].since == "2026-12-26"


def test_an_interval_of_a_link_is_in_the_url() -> None:
    filters = usage_rows.read_filters({"by": "job"}, datetime(2026, 11, 1, tzinfo=UTC))
    fields = filters.fields(since="2026-10-01", until="2026-10-31")
    assert fields == {"by": "job", "since": "2026-10-01", "until": "2026-10-31"}


def test_a_group_of_a_gpu_type_leads_to_no_attempts() -> None:
    """The history has no filter for it."""
    filters = usage_rows.read_filters({"by": "gpu-type"}, NOON)
    assert filters.query().by == ("gpu-type",)
    of_type = msgspec.structs.replace(used(1), group={"gpu-type": "NVIDIA-H100-80GB-HBM3"})
    assert usage_rows.rows([of_type], filters)[0].attempts_of is None

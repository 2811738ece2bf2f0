"""The list of jobs: filters of the URL select, count, order and page rows."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.console import templating
from stromboli.console.core import job_rows
from stromboli.console.core.job_rows import Filters, JobRow
from stromboli.shared.api import batch, kinds, scheduling

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def row(name: str, **fields: Any) -> JobRow:
    known: dict[str, Any] = {
        "namespace": "default",
        "uid": f"uid-{name}",
        "queue": "default",
        "user": "ann",
        "phase": "Running",
        "reason": "",
        "replicas": 1,
        "min_available": 1,
        "pending": 0,
        "running": 1,
        "succeeded": 0,
        "failed": 0,
        "cpu": 1000,
        "gpus": 0,
        "created": NOW,
        "since": NOW,
        "is_deleted": False,
    }
    made = {**known, **fields}
    search = f"{made['namespace']}\n{name}\n{made['queue']}\n{made['user']}"
    order = job_rows.newest(made["created"], name, made["namespace"])
    return JobRow(name=name, search=search, newest=order, **made)


def job(**spec: Any) -> batch.Job:
    document = {
        "metadata": {
            "name": "train",
            "namespace": "vision",
            "uid": "u1",
            "creationTimestamp": "2026-11-23T10:00:00Z",
            "annotations": {"stromboli.sh/user": "ann"},
            "labels": {"team": "Vision"},
        },
        "spec": spec,
    }
    return kinds.JOBS.decode(msgspec.json.encode(document))


def test_a_row_sums_the_requests_of_all_replicas() -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "500m", "nvidia.com/gpu": "2"}}}]
    template = {"spec": {"containers": containers}}
    job_row = job_rows.job_row(job(tasks=[{"name": "w", "replicas": 4, "template": template}]))
    assert (job_row.cpu, job_row.gpus, job_row.replicas) == (2000, 8000, 4)
    assert job_row.phase == "Pending"
    assert "team=vision" in job_row.search


def test_a_limit_without_a_request_is_the_request() -> None:
    """As for the API server: GPUs are mostly written as limits alone."""
    containers = [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]
    template = {"spec": {"containers": containers}}
    job_row = job_rows.job_row(job(tasks=[{"name": "w", "replicas": 4, "template": template}]))
    assert job_row.gpus == 8000


def test_a_template_that_cannot_be_read_requests_nothing() -> None:
    """A job may be stored without admission; the list shows it all the same."""
    template = {"spec": {"containers": "none"}}
    job_row = job_rows.job_row(job(tasks=[{"name": "w", "replicas": 4, "template": template}]))
    assert (job_row.cpu, job_row.replicas) == (0, 4)


def test_every_word_of_a_search_must_occur() -> None:
    rows = [row("train-a", queue="gold"), row("train-b", queue="silver"), row("eval")]
    job_list = job_rows.select(rows, Filters(q="TRAIN gold"))
    assert [it.name for it in job_list.rows] == ["train-a"]


def test_counts_have_all_filters_but_the_phase() -> None:
    rows = [row("a"), row("b", phase="Pending"), row("c", phase="Pending", queue="gold")]
    job_list = job_rows.select(rows, Filters(phase="running", queue="default"))
    assert (job_list.counts["all"], job_list.counts["pending"], job_list.matching) == (2, 1, 1)


def test_the_newest_job_is_first_unless_the_url_orders_otherwise() -> None:
    rows = [row("old", created=NOW - timedelta(hours=1), gpus=8000), row("new")]
    assert [it.name for it in job_rows.select(rows, Filters()).rows] == ["new", "old"]
    assert [it.name for it in job_rows.select(rows, Filters(sort="-gpus")).rows] == ["old", "new"]


ROWS = [
    row(f"job-{number}", created=NOW + timedelta(seconds=number * 7 % 100), gpus=number % 3)
    for number in range(250)
]


@pytest.mark.parametrize("count", [0, 1, 100, 101, 250])
@pytest.mark.parametrize("sort", list(job_rows.SORTS))
def test_pages_are_the_ordered_rows_in_pieces(count: int, sort: Any) -> None:
    rows = ROWS[:count]
    pages = [job_rows.select(rows, Filters(sort=sort, page=number)) for number in (1, 2, 3, 9)]
    job_lists = pages[: pages[0].pages]
    assert sorted(it.name for page in job_lists for it in page.rows) == sorted(
        it.name for it in rows
    )
    assert all(len(page.rows) == job_rows.PAGE_ROWS for page in job_lists[:-1])
    assert pages[-1] == job_lists[-1]


@given(
    st.dictionaries(
        st.sampled_from(["q", "phase", "queue", "user", "namespace", "sort", "page", "other"]),
        st.text(max_size=300),
    )
)
def test_any_query_is_read_and_written_back_alike(query: dict[str, str]) -> None:
    """A URL may be edited by hand, or come from a later version."""
    filters = job_rows.read_filters(query)
    again = dict(parse_qsl(templating.query(filters, page=filters.page).removeprefix("?")))
    assert job_rows.read_filters(again) == filters


def test_a_changed_filter_leads_to_the_first_page() -> None:
    filters = Filters(q="a b", page=3)
    assert templating.query(filters, phase="failed") == "?q=a+b&phase=failed"
    assert templating.query(filters, page=4) == "?q=a+b&page=4"
    assert templating.query(Filters()) == "?"


@pytest.mark.parametrize(
    ("status", "expected"),
    [("True", ("NotEnoughResources", "short of 3 GPUs")), ("False", ("", ""))],
)
def test_a_pod_group_is_pending_for_its_condition(status: str, expected: tuple[str, str]) -> None:
    condition = scheduling.PodGroupCondition(
        type="Unschedulable", status=status, reason="NotEnoughResources", message="short of 3 GPUs"
    )
    group = scheduling.PodGroup(status=scheduling.PodGroupStatus(conditions=(condition,)))
    group_row = job_rows.group_row(group)
    assert (group_row.reason, group_row.message) == expected


class CountedName(str):
    """A name that counts how often it is compared."""

    compared = 0
    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        CountedName.compared += 1
        return super().__lt__(other)


@pytest.mark.parametrize("sort", list(job_rows.SORTS))
def test_the_first_page_of_many_jobs_costs_one_pass(sort: job_rows.Sort) -> None:
    """Comparisons are counted, since time depends on the machine: a full sort of these rows takes
    over 200,000 of them. ``bench/console.py`` measures."""
    count = 20_000
    rows = [
        row(
            CountedName(f"j{number * 7919 % count:05d}"),
            queue=CountedName("q"),
            phase=CountedName("Pending"),
        )
        for number in range(count)
    ]
    CountedName.compared = 0
    page = job_rows.select(rows, Filters(sort=sort))
    assert len(page.rows) == job_rows.PAGE_ROWS
    assert page.counts["pending"] == page.matching == count
    assert CountedName.compared < 4 * count

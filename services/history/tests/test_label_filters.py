"""Jobs are selected by any number of labels, and each has all of them."""

import msgspec
import pytest

from services.history.tests.support import events
from stromboli.history.store import queries, usage, writer
from stromboli.history.store.database import Database
from stromboli.shared.api.views import accounting
from stromboli.testkit import builders

LABELS = {f"key-{number}": "value" for number in range(1000)}
"""PostgreSQL plans the joins of a hundred subqueries for minutes, and SQLite refuses a thousand
conditions."""


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LABELS, 1),
        ({"key-1": "value", "key-2": "value"}, 1),
        ({"key-1": "value"}, 1),
        (LABELS | {"key-1": "other"}, 0),
        ({"key-1": "value", "key-2": "other"}, 0),
        ({"key-1": "other"}, 0),
    ],
)
async def test_a_job_is_selected_by_all_of_its_labels(
    store: Database, wanted: dict[str, str], found: int
) -> None:
    job = builders.make_job("train", namespace="team", labels=LABELS)
    job = msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, uid="u1"))
    made = writer.Writer(store)
    await made.position()
    snapshot = builders.make_record(builders.snapshot_of(job))
    run = (events.task("Pending", 0), events.task("Running", 10, node="n1"))
    await made.apply([snapshot, *events.records(*run)], events.position(2))
    listed = accounting.AttemptQuery(labels=wanted)
    page = await queries.attempts(store, listed, events.at(100))
    assert len(page.attempts) == found
    reported = accounting.UsageQuery(since=events.at(0), until=events.at(60), labels=wanted)
    report = await usage.report(store, reported, events.at(100))
    assert sum(it.attempts for it in report.usage) == found

"""What commands that repeat sessions read from a log."""

from stromboli.embedded import log_reading
from stromboli.scheduler.core.cache import subscriptions
from stromboli.shared import topics


def test_every_topic_of_a_session_is_read() -> None:
    """Snapshots from the history of changes, all others themselves: plans, reports of data sets
    and of usage decide as well."""
    read = {each.name for each in log_reading.WANTED}
    snapshots = {each.name for each in topics.SNAPSHOTS.values()}
    assert {each.name for each in subscriptions.TOPICS} - snapshots <= read
    assert topics.CHANGES.name in read

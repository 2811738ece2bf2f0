"""What commands that repeat sessions read from a log."""

from stromboli.embedded import log_reading
from stromboli.scheduler.core.cache import subscriptions
from stromboli.shared import topics


def test_every_topic_of_a_session_is_read() -> None:
    """Those that the topic of changes has copies of from there, all others themselves."""
    read = {each.name for each in log_reading.WANTED}
    copied = {each.name for each in topics.COPIED}
    assert {each.name for each in subscriptions.TOPICS} - copied <= read
    assert topics.CHANGES.name in read

"""Retention and compaction of the embedded log, with Kafka's semantics.

Compacted topics keep the last record of every key, all records for ``COMPACTION_LAG_MS``, and
tombstones for a day so that active readers receive them. Other topics keep records younger than
their ``retention.ms``.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from sqlite3 import Connection

from stromboli.shared import topics

_LEAST_APPENDED = 1000
"""Minimum appends between two sweeps: a sweep reads all keys of a topic, about 1 ms per 1000."""


class Retention:
    """Decides when to sweep a topic, and sweeps it. Amortized O(log n) per record."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._appended: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()

    def is_due(self, topic: topics.Topic) -> bool:
        """Count an appended record; return True once the appends since the last sweep reach the
        number of records that it kept, and ``_LEAST_APPENDED``.
        """
        name = topic.name
        self._appended[name] += 1
        if self._appended[name] < max(_LEAST_APPENDED, self._kept[name]):
            return False
        self._appended[name] = 0
        return True

    def sweep(self, topic: topics.Topic, number: int) -> Callable[[Connection], None]:
        """Return the database change that removes expired and superseded records of the topic."""
        now_ms = int(self._clock().timestamp() * 1000)

        def change(database: Connection) -> None:
            if topic.is_compacted:
                _compact(database, number, now_ms)
            else:
                _expire(database, number, now_ms - int(topic.settings["retention.ms"]))
            (self._kept[topic.name],) = database.execute(
                "SELECT count(*) FROM records WHERE topic = ?", (number,)
            ).fetchone()

        return change


def _compact(database: Connection, number: int, now_ms: int) -> None:
    database.execute(
        "DELETE FROM records WHERE topic = ?1 AND at_ms < ?2 AND offset NOT IN"
        " (SELECT max(offset) FROM records WHERE topic = ?1 GROUP BY key)",
        (number, now_ms - topics.COMPACTION_LAG_MS),
    )
    database.execute(
        "DELETE FROM records WHERE topic = ? AND value IS NULL AND at_ms < ?",
        (number, now_ms - topics.DAY_MS),
    )


def _expire(database: Connection, number: int, before_ms: int) -> None:
    """Delete from the start up to the first record that is young enough. Record times grow with
    offsets, unless the clock was set back.
    """
    young = database.execute(
        "SELECT offset FROM records WHERE topic = ? AND at_ms >= ? ORDER BY offset LIMIT 1",
        (number, before_ms),
    ).fetchone()
    if young is None:
        database.execute("DELETE FROM records WHERE topic = ?", (number,))
    else:
        database.execute("DELETE FROM records WHERE topic = ? AND offset < ?", (number, young[0]))

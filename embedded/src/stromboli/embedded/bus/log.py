"""Topics, records and committed offsets in one SQLite file.

Retention follows Kafka: compacted topics keep the last record of each key, the others keep records
for their ``retention.ms``. Offsets are never reused, even if all records after them were removed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from sqlite3 import Connection

import msgspec

from stromboli.embedded.bus.retention import Retention
from stromboli.embedded.store import Store
from stromboli.shared import decoding, envelope, errors, topics
from stromboli.shared.bus import fencing

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS topics"
    " (id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, next INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS records (topic INTEGER, offset INTEGER, key TEXT NOT NULL,"
    " value BLOB, headers BLOB NOT NULL, at_ms INTEGER NOT NULL,"
    # With rowids: a table without them keeps at most 1 kB of a row in its page of 4 KiB and the
    # rest in an overflow page, so that a record of 1.3 kB takes 5 kB.
    " PRIMARY KEY (topic, offset))",
    "CREATE TABLE IF NOT EXISTS work"
    " (name TEXT, topic INTEGER, next INTEGER NOT NULL, PRIMARY KEY (name, topic)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS accepted_epochs"
    " (name TEXT, topic INTEGER, epoch INTEGER NOT NULL, PRIMARY KEY (name, topic)) WITHOUT ROWID",
)
_PAGE_RECORDS = 1000
_PAGE_BYTES = 16 * 1024 * 1024
"""Bytes per read: large enough to be fast, small enough for each reader to hold in memory."""

_BY_NAME = {topic.name: topic for topic in topics.ALL}
_HEADERS = decoding.decoder_of(dict[str, str])


class PendingRecord(msgspec.Struct, frozen=True):
    """A record to append; ``seal`` returns its headers and value once the offset is known."""

    topic: topics.Topic
    key: str
    seal: Callable[[int], tuple[Mapping[str, str], bytes | None]]


class Log:
    """The log file. ``ends``: topic name -> offset after its last durable record."""

    def __init__(self, path: Path, cluster_name: str, clock: Callable[[], datetime]) -> None:
        self.cluster_name = cluster_name
        self._clock = clock
        self._store = Store(path, _SCHEMA)
        self._retention = Retention(clock)
        self._ids: dict[str, int] = {}  # belongs to the store's thread
        self._identities: dict[str, str] = {}
        self._next: dict[str, int] = {}  # belongs to the store's thread
        self.ends: dict[str, int] = {}
        self._consumers: dict[tuple[str, str], object] = {}
        self._is_open = False
        self._grown = asyncio.Event()

    async def open(self) -> None:
        """Open the file, create missing topics, remove expired records."""
        await self._store.open()
        try:
            await self._store.write(self._load)
            for topic in topics.ALL:
                await self._store.write(self._retention.sweep(topic, self._ids[topic.name]))
        except BaseException:
            await self._store.close()
            raise
        self._is_open = True

    async def close(self) -> None:
        """Close the file and wake all waiting readers."""
        self._is_open = False
        self._wake()
        await self._store.close()

    def append(self, lines: Sequence[PendingRecord]) -> asyncio.Future[list[int]]:
        """Append records in order, atomically; return their offsets once they are durable."""
        at_ms = int(self._clock().timestamp() * 1000)

        def change(database: Connection) -> list[int]:
            return [self._insert(database, line, at_ms) for line in lines]

        def publish(offsets: list[int]) -> None:
            for line, offset in zip(lines, offsets, strict=True):
                self.ends[line.topic.name] = offset + 1
                if self._retention.is_due(line.topic):
                    number = self._ids[line.topic.name]
                    self._store.write(self._retention.sweep(line.topic, number))
            self._wake()

        return self._store.write(change, publish)

    def has_more(self, positions: Mapping[str, int]) -> bool:
        """Return whether one of the topics has records after its position."""
        ends = self.ends
        for name, position in positions.items():  # noqa: SIM110 - each append wakes each reader
            if position < ends[name]:
                return True
        return False

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        """Return the ids that distinguish each topic from earlier topics of the same name."""
        return {name: self._identities[name] for name in names}

    async def page(
        self, positions: Mapping[str, int], topic_ids: Mapping[str, str]
    ) -> tuple[list[envelope.Record], dict[str, int]]:
        """Return the next records from these positions, and the positions after them. A topic whose
        id has changed is skipped.
        """
        return await self._store.read(lambda database: self._read(database, positions, topic_ids))

    async def tails(self, wanted: Sequence[topics.Topic]) -> list[envelope.Record]:
        """Return the last records of each topic, as many as opening a writer requires."""
        query = (
            "SELECT offset, key, value, headers FROM records WHERE topic = ?"
            f" ORDER BY offset DESC LIMIT {fencing.TAIL_RECORDS}"
        )

        def read(database: Connection) -> list[envelope.Record]:
            return [
                _record(topic, *row)
                for topic in wanted
                for row in database.execute(query, (self._ids[topic.name],))
            ]

        return await self._store.read(read)

    async def recreate(self, topic: topics.Topic) -> None:
        """Replace the topic by an empty one that starts at offset 0 and has no committed
        offsets.
        """

        def change(database: Connection) -> int:
            before = self._ids[topic.name]
            name = topic.full_name(self.cluster_name)
            # The new row comes first, so that it gets an id that no topic has had.
            database.execute("INSERT INTO topics (name, next) VALUES (?, 0)", (f"{name}$new",))
            for table in ("records", "work", "accepted_epochs"):
                database.execute(f"DELETE FROM {table} WHERE topic = ?", (before,))
            database.execute("DELETE FROM topics WHERE id = ?", (before,))
            database.execute("UPDATE topics SET name = ? WHERE name = ?", (name, f"{name}$new"))
            (after,) = database.execute("SELECT id FROM topics WHERE name = ?", (name,)).fetchone()
            self._ids[topic.name], self._next[topic.name] = int(after), 0
            return int(after)

        def publish(after: int) -> None:
            self._identities[topic.name], self.ends[topic.name] = str(after), 0
            self._wake()

        await self._store.write(change, publish)

    async def growth(self) -> None:
        """Wait for an append. Raises UnavailableError if the log is closed."""
        if self._is_open:
            await self._grown.wait()
        if not self._is_open:
            raise errors.UnavailableError("read the log", "it was closed")

    async def last_record(self, topic: topics.Topic) -> envelope.Record | None:
        """Return the record with the highest offset, except epoch announcements and records of
        other clusters.
        """

        def read(database: Connection) -> envelope.Record | None:
            rows = database.execute(
                "SELECT offset, key, value, headers FROM records WHERE topic = ?"
                " ORDER BY offset DESC",
                (self._ids[topic.name],),
            )
            candidates = (_record(topic, *row) for row in rows)
            return next((it for it in candidates if self._is_message(it)), None)

        return await self._store.read(read)

    def open_consumer(self, topic: topics.Topic, group: str, consumer: object) -> None:
        """Make ``consumer`` the only one of its group whose commits are accepted."""
        self._consumers[topic.name, group] = consumer
        self._wake()

    def is_replaced(self, topic: topics.Topic, group: str, consumer: object) -> bool:
        """Whether a later consumer was opened for the group."""
        return self._consumers.get((topic.name, group)) is not consumer

    def _is_message(self, record: envelope.Record) -> bool:
        is_foreign = fencing.is_foreign(record, self.cluster_name)
        return not is_foreign and not fencing.is_announcement(record)

    async def committed(self, topic: topics.Topic, group: str) -> tuple[int, int]:
        """Return the committed offset and epoch of a group; 0 and -1 if there is none."""
        row = await self._store.read(
            lambda database: database.execute(
                "SELECT next, epoch FROM work LEFT JOIN accepted_epochs USING (name, topic)"
                " WHERE name = ? AND topic = ?",
                (group, self._ids[topic.name]),
            ).fetchone()
        )
        if row is None:
            return 0, -1
        return row[0], -1 if row[1] is None else row[1]

    def commit(
        self,
        topic: topics.Topic,
        group: str,
        identity: str,
        position: int,
        epoch: int,
        then: Callable[[None], None],
    ) -> asyncio.Future[None]:
        """Store a group's offset and the highest epoch accepted before it. Does nothing if the
        topic was recreated.
        """

        def change(database: Connection) -> None:
            if identity != str(self._ids[topic.name]):
                return
            for table, value in (("work", position), ("accepted_epochs", epoch)):
                database.execute(
                    f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)",
                    (group, self._ids[topic.name], value),
                )

        return self._store.write(change, then)

    async def compact(self) -> None:
        """Remove expired and superseded records."""
        for topic in topics.ALL:
            await self._store.write(self._retention.sweep(topic, self._ids[topic.name]))

    async def probe(self) -> None:
        """Raise UnavailableError if the file is not writable."""
        await self._store.write(lambda database: None)

    def _wake(self) -> None:
        self._grown.set()
        self._grown = asyncio.Event()

    # --- in the store's thread -------------------------------------------------------------

    def _load(self, database: Connection) -> None:
        for topic in topics.ALL:
            name = topic.full_name(self.cluster_name)
            database.execute("INSERT OR IGNORE INTO topics (name, next) VALUES (?, 0)", (name,))
            number, end = database.execute(
                "SELECT id, next FROM topics WHERE name = ?", (name,)
            ).fetchone()
            self._ids[topic.name] = number
            self._next[topic.name] = self.ends[topic.name] = end
            self._identities[topic.name] = str(number)

    def _insert(self, database: Connection, line: PendingRecord, at_ms: int) -> int:
        name = line.topic.name
        number, offset = self._ids[name], self._next[name]
        headers, value = line.seal(offset)
        database.execute(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)",
            (number, offset, line.key, value, msgspec.json.encode(headers), at_ms),
        )
        database.execute("UPDATE topics SET next = ? WHERE id = ?", (offset + 1, number))
        self._next[name] = offset + 1
        return offset

    def _read(
        self, database: Connection, positions: Mapping[str, int], topic_ids: Mapping[str, str]
    ) -> tuple[list[envelope.Record], dict[str, int]]:
        records: list[envelope.Record] = []
        reached = dict(positions)
        left = _PAGE_BYTES
        for name, position in positions.items():
            if position >= self._next[name] or topic_ids[name] != str(self._ids[name]):
                continue
            rows = database.execute(
                "SELECT offset, key, value, headers FROM records"
                " WHERE topic = ? AND offset >= ? ORDER BY offset",
                (self._ids[name], position),
            )
            reached[name] = self._next[name]
            for row in rows:
                if len(records) >= _PAGE_RECORDS or left <= 0:
                    reached[name] = row[0]
                    break
                records.append(_record(_BY_NAME[name], *row))
                left -= len(row[2] or b"")
            rows.close()
        return records, reached


def _record(
    topic: topics.Topic, offset: int, key: str, value: bytes | None, headers: bytes
) -> envelope.Record:
    return envelope.Record(topic, offset, key, value, _HEADERS.decode(headers))

"""Copies compacted topics to ``cluster.changes``, which keeps all records: replaying past sessions
needs those that compaction removes.

::

    topics.COPIED ──── materialize ──▶ cluster.changes: each record unchanged, with its position
                                       └── checkpoints: how far, and since when it is complete

Once a day it writes a new image of the topics, so that a reader may begin at any retained image. It
is not on the latency path: it reads the log like any other reader.
"""

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from datetime import datetime, timedelta

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import base, cluster
from stromboli.shared.runtime import runtime

IMAGE_EVERY = timedelta(days=1)
"""With a retention of two weeks the history then reaches back at least thirteen days."""
PAUSE_S = 1.0
"""Seconds between reads: the history is not urgent, and records that arrived meanwhile are written
together. With 0.25 s, a third of the monitor's produce requests under load were the history's.
"""
KEPT = "$kept"
"""Key of the checkpoint records."""
WANTED = topics.COPIED


class History:
    """Appends to ``cluster.changes`` until cancelled. ``ends``: end offsets of the monitor's own
    topics at the start.
    """

    def __init__(
        self,
        bus: port.Bus,
        writer: port.Writer,
        health: runtime.Health,
        clock: runtime.Clock,
        ends: Mapping[str, int],
    ) -> None:
        self._bus = bus
        self._writer = writer
        self._health = health
        self._clock = clock
        self._ends = ends

    async def keep(self) -> None:
        """Continue at the last checkpoint, or with a new image if its image is a day old."""
        await self._follow(await self._last())
        while True:
            await self._follow(None)

    async def _last(self) -> cluster.HistoryCheckpointed | None:
        record = await runtime.retry_until_available(
            lambda: self._bus.last_record(topics.CHANGES), "log", self._health
        )
        try:
            message = None if record is None else envelope.decode(record)
        except errors.UndecodableError:
            return None
        if not isinstance(message, cluster.HistoryCheckpointed) or self._is_due(message):
            return None
        known = all(message.positions.get(name, 0) <= end for name, end in self._ends.items())
        return message if known else None  # otherwise a topic has lost records

    async def _follow(self, kept: cluster.HistoryCheckpointed | None) -> None:
        """Copy until an image is due. ``kept``: the checkpoint to continue from; None: write an
        image.
        """
        start = (
            port.START
            if kept is None
            else port.Position(kept.positions, kept.epochs, kept.topic_ids)
        )
        image_from = -1 if kept is None else kept.image_offset
        imaged_at = self._clock() if kept is None else kept.imaged_at
        is_whole = kept is not None
        unread: dict[str, list[int]] = {}
        # Only a warning: no service depends on the history.
        fold = materialization.materialize(
            self._bus, WANTED, self._health.warn, "history", start, is_urgent=False
        )
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                if any(
                    start.topic_ids.get(name, topic_id) != topic_id
                    for name, topic_id in batch.position.topic_ids.items()
                ):
                    return  # a topic was deleted and created again: its offsets changed
                is_whole = is_whole or batch.caught_up
                for record in (*batch.announced, *batch.fenced):
                    unread.setdefault(record.topic.name, []).append(record.offset)
                drafts = [_copy(record, self._clock()) for record in batch.records]
                if drafts and image_from < 0:
                    image_from, drafts = await self._append(drafts), []
                if is_whole and batch.records:
                    kept = cluster.HistoryCheckpointed(
                        positions=dict(batch.positions),
                        epochs=dict(batch.position.epochs),
                        topic_ids=dict(batch.position.topic_ids),
                        image_offset=image_from,
                        imaged_at=imaged_at,
                        unread={name: tuple(offsets) for name, offsets in unread.items()},
                    )
                    unread = {}
                    drafts.append(_draft(KEPT, kept, self._clock()))
                if drafts and await self._append(drafts) < image_from:
                    return  # the history was deleted and created again: it needs an image
                if kept is not None and self._is_due(kept):
                    return
                if is_whole and batch.records:
                    await asyncio.sleep(PAUSE_S)

    async def _append(self, drafts: list[envelope.Draft]) -> int:
        """Append the drafts; returns the offset of the first one."""
        call = functools.partial(self._writer.append, *drafts)
        stand = await runtime.retry_until_available(call, "log", self._health)
        return stand[0].offset

    def _is_due(self, kept: cluster.HistoryCheckpointed) -> bool:
        return not timedelta() <= self._clock() - kept.imaged_at < IMAGE_EVERY


def _copy(record: envelope.Record, now: datetime) -> envelope.Draft:
    """A draft with the record's bytes unchanged: a replay reads what services have read. Only a
    record of a type that does not belong on its topic becomes a stub."""
    message, encoded = None, None
    uid, version = (record.headers.get(f"ce_object{name}", "") for name in ("uid", "version"))
    if record.value is not None:
        if base.TYPES.get(record.type) in record.topic.carries:
            encoded = envelope.Encoded(record.type, record.value)
        else:
            reason = f"type {record.type!r} does not belong on {record.topic.name}"
            message = cluster.Unreadable(uid=uid, resource_version=version, reason=reason)
    return envelope.Draft(
        topic=topics.CHANGES,
        key=f"{record.topic.name}/{record.key}",
        message=message,
        encoded=encoded,
        time=now,
        cause=record.id,
        traceparent=record.traceparent,
        object_uid=uid,
        object_version=version,
        position=record.offset,
    )


def _draft(key: str, message: cluster.HistoryCheckpointed, now: datetime) -> envelope.Draft:
    return envelope.Draft(topic=topics.CHANGES, key=key, message=message, time=now)

"""What stood on the snapshot topics, kept in full: they are compacted, and past sessions need it.

::

    snapshot topics ── fold ──▶ cluster.changes: each record as it is, with where it stands
                                └── how far, and from where on the picture is whole

Once a day all begins anew with what the topics hold by then, so that whoever reads the history may
begin at any of these images, as long as one is kept. Off the short path: it reads the log as any
other reader does.
"""

import asyncio
import contextlib
import functools
from collections.abc import Mapping
from datetime import datetime, timedelta

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import materialization, port
from stromboli.shared.messages import cluster
from stromboli.shared.runtime import runtime

IMAGE_EVERY = timedelta(days=1)
"""What is kept for two weeks then reaches back thirteen days at least."""
PAUSE_S = 0.25
"""Between looks: nobody waits for the history, and what came meanwhile is written at once."""
KEPT = "$kept"
"""Key of the records that say how far."""
WANTED = topics.MATERIALIZED


class History:
    """Appends to ``cluster.changes`` until cancelled. ``ends``: where the snapshot topics ended at
    the start."""

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
        """Go on where the last one ended, if that is known and its image not a day old."""
        await self._follow(await self._last())
        while True:
            await self._follow(None)

    async def _last(self) -> cluster.HistoryCheckpointed | None:
        record = await runtime.retry_until_available(
            lambda: self._bus.last(topics.CHANGES), "log", self._health
        )
        try:
            message = None if record is None else envelope.decode(record)
        except errors.UndecodableError:
            return None
        if not isinstance(message, cluster.HistoryCheckpointed) or self._is_due(message):
            return None
        known = all(at <= self._ends.get(name, 0) for name, at in message.positions.items())
        return message if known else None  # else a topic has lost records

    async def _follow(self, kept: cluster.HistoryCheckpointed | None) -> None:
        """Until an image is due. ``kept``: up to where all is there; None: make an image."""
        start = (
            port.START
            if kept is None
            else port.Position(kept.positions, kept.epochs, kept.topic_ids)
        )
        image_from = -1 if kept is None else kept.image_offset
        imaged_at = self._clock() if kept is None else kept.imaged_at
        is_whole = kept is not None
        # A warning only: nobody waits for the history.
        fold = materialization.materialize(self._bus, WANTED, self._health.warn, "history", start)
        async with contextlib.aclosing(fold) as batches:
            async for batch in batches:
                is_whole = is_whole or batch.caught_up
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
                    )
                    drafts.append(_draft(KEPT, kept, self._clock()))
                if drafts and await self._append(drafts) < image_from:
                    return  # the history was deleted and created again: it needs an image
                if kept is not None and self._is_due(kept):
                    return
                if is_whole and batch.records:
                    await asyncio.sleep(PAUSE_S)

    async def _append(self, drafts: list[envelope.Draft]) -> int:
        """Where the first of them stands."""
        call = functools.partial(self._writer.append, *drafts)
        stand = await runtime.retry_until_available(call, "log", self._health)
        return stand[0].offset

    def _is_due(self, kept: cluster.HistoryCheckpointed) -> bool:
        return not timedelta() <= self._clock() - kept.imaged_at < IMAGE_EVERY


def _copy(record: envelope.Record, now: datetime) -> envelope.Draft:
    try:
        message = envelope.decode(record)
    except errors.UndecodableError as error:
        uid, version = (record.headers.get(f"ce_object{name}", "") for name in ("uid", "version"))
        message = cluster.Unreadable(uid=uid, resource_version=version, reason=error.reason)
    return envelope.Draft(
        topic=topics.CHANGES,
        key=f"{record.topic.name}/{record.key}",
        message=message,
        time=now,
        cause=record.id,
        traceparent=record.traceparent,
        object_uid=record.headers.get("ce_objectuid", ""),
        object_version=record.headers.get("ce_objectversion", ""),
        position=record.offset,
    )


def _draft(key: str, message: cluster.HistoryCheckpointed, now: datetime) -> envelope.Draft:
    return envelope.Draft(topic=topics.CHANGES, key=key, message=message, time=now)

"""Finds the offsets from which a starting scheduler reads decisions and outcomes.

The record of the newest session contains them. It is near the end of the topic, because the last
record of every session with decisions is its session record; only an interrupted append or
``opened`` records can follow it.
"""

import contextlib

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import scheduling as messages

_FIRST_WINDOW = 64
"""Number of records in the first window from the end. Usually the last record is the session's."""
_WINDOW_GROWTH = 16
"""Growth factor of each next window, so that few reads suffice and few records are read twice."""


async def start_position(bus: port.Bus) -> port.Position:
    """The position to read from; topics that it does not contain are read from their start.

    Raises TransientError.
    """
    newest = await bus.last_record(topics.DECISIONS)
    end = 0 if newest is None else newest.offset + 1
    back = _FIRST_WINDOW
    while end:
        first = max(end - back, 0)
        session = await _newest_session(bus, first)
        if session is not None:
            positions = {
                topics.DECISIONS.name: session.unconfirmed_from,
                topics.OUTCOMES.name: session.outcomes_from,
            }
            return port.Position(positions, session.epochs_seen, session.topic_ids)
        if first == 0:
            break
        back *= _WINDOW_GROWTH
    return port.START


async def _newest_session(bus: port.Bus, first: int) -> messages.SessionRecorded | None:
    session_record: messages.SessionRecorded | None = None
    batches = bus.materialize((topics.DECISIONS,), port.Position({topics.DECISIONS.name: first}))
    async with contextlib.aclosing(batches) as batches:
        async for batch in batches:
            for record in batch.records:
                with contextlib.suppress(errors.UndecodableError):
                    message = envelope.decode(record)
                    if isinstance(message, messages.SessionRecorded):
                        session_record = message
            if batch.caught_up:
                break
    return session_record

"""Where a starting scheduler begins to fold decisions and outcomes: not two weeks ago.

The newest session's record says it. It stands near the end of the log, as every session that
decides something ends with one; only a crash within an append, or openings, stand behind it.
"""

import contextlib

from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import scheduling as messages

_FIRST_WINDOW = 64
"""Records looked at from the end, at first: mostly the record is the last one."""
_WINDOW_GROWTH = 16
"""By how much farther back each next look goes: few looks, and little read twice."""


async def start_position(bus: port.Bus) -> port.Position:
    """Where to fold from; topics that it does not name, from their start.

    Raises TransientError.
    """
    newest = await bus.last(topics.DECISIONS)
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
    found: messages.SessionRecorded | None = None
    batches = bus.materialize((topics.DECISIONS,), port.Position({topics.DECISIONS.name: first}))
    async with contextlib.aclosing(batches) as batches:
        async for batch in batches:
            for record in batch.records:
                with contextlib.suppress(errors.UndecodableError):
                    message = envelope.decode(record)
                    if isinstance(message, messages.SessionRecorded):
                        found = message
            if batch.caught_up:
                break
    return found

"""Explanations of pending PodGroups and their positions over time, thinned.

Pure. The scheduler publishes an explanation whenever one of its numbers changes, and the order of a
queue whenever a PodGroup joins or leaves it: far more than anyone reads later. So the history keeps

1. an explanation if its kind of reason differs from the last kept one, or if ``THINNED`` has passed
   since; and the fact that nothing blocks the PodGroup any more;
2. a position if it is the first of the wait, or if it differs from the last kept one and
   ``THINNED`` has passed since.

Each decision needs only the last kept values of the PodGroup (``LastExplanationRow``). A record
that is not newer than these changes nothing, so a repeated record has its effect once. The topic is
compacted: of a time in which the history did not run, only the last state is left.
"""

from datetime import timedelta

import msgspec

from stromboli.history.core.rows import (
    ChunkRow,
    ExplanationRow,
    LastExplanationRow,
    PositionRow,
    Rows,
    text,
    whole,
)
from stromboli.shared import envelope
from stromboli.shared.messages import base, scheduling

THINNED = timedelta(hours=1)
_THINNED_US = THINNED // timedelta(microseconds=1)
_READ = frozenset(
    (base.type_name(scheduling.PodGroupExplained), base.type_name(scheduling.QueueOrdered))
)
_SEPARATOR = "//"
"""Records about something other than one PodGroup have keys with this separator, or without any
slash."""


class NotBlocked(msgspec.Struct, frozen=True):
    """Nothing blocks a PodGroup any more."""

    pod_group: str


def decode(record: envelope.Record) -> msgspec.Struct | None:
    """The message of a record of explanations; None if it is about something else. Raises
    UndecodableError."""
    if record.value is None:
        is_group = "/" in record.key and _SEPARATOR not in record.key
        return NotBlocked(record.key) if is_group else None
    return envelope.decode(record) if record.type in _READ else None


def explain(rows: Rows, at_us: int, message: scheduling.PodGroupExplained) -> None:
    """Keep an explanation that rule 1 selects."""
    row = ExplanationRow(
        text(message.pod_group),
        at_us,
        text(message.queue),
        message.tier,
        text(msgspec.json.encode(message).decode()),
    )
    last = rows.last_explanations.get(row.pod_group)
    if last is None:
        last = rows.last_explanations[row.pod_group] = LastExplanationRow(row.pod_group)
    is_known = last.tier == row.tier and at_us < last.at + _THINNED_US
    if at_us > last.at and not is_known:
        last.tier, last.at = row.tier, at_us
        rows.explanations[row.pod_group, at_us] = row


def unblock(rows: Rows, at_us: int, message: NotBlocked) -> None:
    """Record that a PodGroup is no longer blocked, if it was blocked before."""
    last = rows.last_explanations.get(text(message.pod_group))
    if last is None or not last.tier or at_us <= last.at:
        return
    last.tier, last.at = "", at_us
    last.position_at, last.in_front = None, 0
    rows.explanations[last.pod_group, at_us] = ExplanationRow(last.pod_group, at_us)


def order(rows: Rows, at_us: int, message: scheduling.QueueOrdered) -> None:
    """Keep the positions of a chunk of a queue's order that rule 2 selects."""
    queue, chunk = text(message.queue), whole(message.chunk)
    rows.queue_chunks[queue, chunk] = ChunkRow(queue, chunk, len(message.pod_groups))
    before = sum(
        it.pod_groups for it in rows.queue_chunks.values() if it.queue == queue and it.chunk < chunk
    )
    for in_front, name in enumerate(message.pod_groups, before):
        last = rows.last_explanations.get(text(name))
        if last is None or not last.tier:
            continue  # its explanation comes before its position, in the same session
        since = last.position_at
        if since is None or (last.in_front != in_front and at_us >= since + _THINNED_US):
            last.position_at, last.in_front = at_us, in_front
            row = PositionRow(last.pod_group, at_us, queue, in_front)
            rows.queue_positions[last.pod_group, at_us] = row

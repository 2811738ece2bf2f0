"""Materialization with retries after failures of the log. Every service reads its state through
this module."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

from stromboli.shared import errors, topics
from stromboli.shared.bus import port
from stromboli.shared.runtime import runtime


async def end_offsets(
    bus: port.Bus, wanted: Sequence[topics.Topic], health: runtime.Health
) -> Mapping[str, int]:
    """Topic name -> the current end offset. A new leader reads up to these offsets before it acts:
    the previous leader acted on all of these records, and an object that was not read yet must not
    be treated as absent.
    """

    async def end(topic: topics.Topic) -> tuple[str, int]:
        newest = await runtime.retry_until_available(lambda: bus.last_record(topic), "log", health)
        return topic.name, 0 if newest is None else newest.offset + 1

    return dict(await asyncio.gather(*map(end, wanted)))


def fail_on_recreated(recreated: Collection[str]) -> None:
    """Raise LogLostError, since state derived from these topics is void."""
    names = ", ".join(sorted(recreated))
    raise errors.LogLostError(f"read {names}", "the topic was recreated or truncated")


async def materialize(
    bus: port.Bus,
    wanted: Sequence[topics.Topic],
    report: Callable[[str, str | None], None],
    condition: str,
    start: port.Position = port.START,
    on_recreated: Callable[[Collection[str]], None] = fail_on_recreated,
    *,
    is_urgent: bool = True,
) -> AsyncGenerator[port.Batch, None]:
    """``port.Bus.materialize``, repeated after transient errors.

    A repetition starts after the last batch that the caller finished, and sets ``caught_up`` again
    at the end of the log as of that moment. ``report`` (``Health.set`` or ``Health.warn``) receives
    ``condition`` with the error, and with None once records arrive again. Permanent errors are
    raised. Close the generator with ``aclosing``.

    ``on_recreated`` receives the names of topics that were deleted and created again. The default
    raises LogLostError, because state derived from the lost records must be dropped as a whole.
    """
    backoff = runtime.Backoff()
    while True:
        try:
            reading = bus.materialize(wanted, start, is_urgent=is_urgent)
            async with contextlib.aclosing(reading) as batches:
                async for batch in batches:
                    report(condition, None)
                    if batch.recreated:
                        on_recreated(batch.recreated)
                    if batch.records:
                        backoff.reset()
                    yield batch
                    start = batch.position
        except errors.TransientError as error:
            report(condition, str(error))
            await asyncio.sleep(backoff.next_s(error.retry_after_s))

"""A fold that outlasts the log's troubles: every service reads its state through this."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

from stromboli.shared import errors, topics
from stromboli.shared.bus import port
from stromboli.shared.runtime import runtime


async def end_offsets(
    bus: port.Bus, wanted: Sequence[topics.Topic], health: runtime.Health
) -> Mapping[str, int]:
    """Topic name -> the offset behind what stands there now. Whoever takes over reads up to there
    before it acts: the one before acted on all of it, and what is not read yet is not absent."""

    async def end(topic: topics.Topic) -> tuple[str, int]:
        newest = await runtime.retry_until_available(lambda: bus.last(topic), "log", health)
        return topic.name, 0 if newest is None else newest.offset + 1

    return dict(await asyncio.gather(*map(end, wanted)))


def fail_on_recreated(recreated: Collection[str]) -> None:
    """Raises LogLostError: what was derived from these topics is void."""
    names = ", ".join(sorted(recreated))
    raise errors.LogLostError(f"read {names}", "deleted and created again, or cut short")


async def materialize(
    bus: port.Bus,
    wanted: Sequence[topics.Topic],
    tell: Callable[[str, str | None], None],
    fact: str,
    start: port.Position = port.START,
    on_recreated: Callable[[Collection[str]], None] = fail_on_recreated,
) -> AsyncGenerator[port.Batch, None]:
    """As ``port.Bus.fold``, and after a transient error again, from behind the last batch that its
    reader was done with; ``caught_up`` is then said anew, of the end as it is by then.

    ``tell``, a health's ``set`` or ``warn``, hears why nothing is read, and None whenever something
    is. Permanent errors pass through. Close it with ``aclosing``.

    ``on_recreated`` gets the names of topics that were deleted and created again; by default this
    raises LogLostError, since state derived from what is gone must be dropped as a whole.
    """
    backoff = runtime.Backoff()
    while True:
        try:
            async with contextlib.aclosing(bus.fold(wanted, start)) as batches:
                async for batch in batches:
                    tell(fact, None)
                    if batch.recreated:
                        on_recreated(batch.recreated)
                    if batch.records:
                        backoff.reset()
                    yield batch
                    start = batch.position
        except errors.TransientError as error:
            tell(fact, str(error))
            await asyncio.sleep(backoff.next_s(error.retry_after_s))

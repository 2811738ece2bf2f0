"""A fold that outlasts the log's troubles: every service reads its state through this."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from stromboli.shared import errors, runtime, topics
from stromboli.shared.bus import port


async def fold(
    bus: port.Bus,
    wanted: Sequence[topics.Topic],
    tell: Callable[[str, str | None], None],
    fact: str,
    start: port.Place = port.START,
) -> AsyncGenerator[port.Batch, None]:
    """As ``port.Bus.fold``, and after a transient error again, from behind the last batch that its
    reader was done with; ``caught_up`` is then said anew, of the end as it is by then.

    ``tell``, a health's ``set`` or ``warn``, hears why nothing is read, and None whenever something
    is. Permanent errors pass through. Close it with ``aclosing``.
    """
    backoff = runtime.Backoff()
    while True:
        try:
            async with contextlib.aclosing(bus.fold(wanted, start)) as batches:
                async for batch in batches:
                    tell(fact, None)
                    if batch.records:
                        backoff.reset()
                    yield batch
                    start = batch.place
        except errors.TransientError as error:
            tell(fact, str(error))
            await asyncio.sleep(backoff.next_s(error.retry_after_s))

"""A process that writes a log into a store, batch by batch, for tests that kill it.

    python ingest.py URL PODS RECORDS_PER_BATCH

The log is a function of PODS. It prints the offset behind each batch, and ``done``.
"""

import asyncio
import sys

import msgspec

from services.history.tests.support import events
from stromboli.history.store.database import Database
from stromboli.history.store.writer import Writer


def log_of(pods: int) -> list[msgspec.Struct]:
    """Pods that run one after another, and the deletion of their job in the middle of a run."""
    made: list[msgspec.Struct] = [events.phase("Pending", 0, 1)]
    for number in range(pods):
        name, second = f"p{number}", 10 * number
        made.append(events.task("Pending", second, name))
        made.append(events.task("Bound", second + 1, name, node="n1"))
        made.append(events.task("Running", second + 2, name, node="n1"))
        if number != pods - 1:
            made.append(events.task("Succeeded", second + 10, name, node="n1", exit_code=0))
    return [*made, events.deleted(10 * pods)]


async def main(url: str, pods: int, size: int) -> None:
    """Continue at the store's position."""
    store = Database(url)
    await store.migrate()
    writer = Writer(store)
    begin = (await writer.position()).positions.get("batch.events", 0)
    records = events.records(*log_of(pods))
    for at in range(begin, len(records), size):
        end = min(at + size, len(records))
        await writer.apply(records[at:end], events.position(end))
        print(end, flush=True)  # noqa: T201 - for the test that reads it
    await store.close()
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

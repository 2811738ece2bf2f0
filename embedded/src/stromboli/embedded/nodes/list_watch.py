"""List and watch a kind over the cluster port, indefinitely."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.cluster import watches
from stromboli.shared.runtime import runtime


async def list_and_watch(
    cluster: cluster_port.Cluster, kind: kinds.Kind[Any]
) -> AsyncGenerator[cluster_port.WatchEvent | None, None]:
    """Yield ADDED for each existing object, then None, then changes. After a lost watch the kind is
    listed again; objects that vanished meanwhile yield DELETED.
    """
    backoff = runtime.Backoff()
    known: dict[str, bytes] = {}
    while True:
        try:
            listing = await cluster.list(kind)
            before, known = known, {kinds.metadata_of(item).uid: item for item in listing.items}
            for uid, item in before.items():
                if uid not in known:
                    yield cluster_port.WatchEvent("DELETED", item)
            for item in listing.items:
                yield cluster_port.WatchEvent("ADDED", item)
            yield None
            version = listing.resource_version
            while True:
                stream = cluster.watch(kind, version)
                async with watches.closing(stream, backoff) as events:
                    async for event in events:
                        meta = kinds.metadata_of(event.object)
                        version = meta.resource_version
                        if event.type == "DELETED":
                            known.pop(meta.uid, None)
                        elif event.type != "BOOKMARK":
                            known[meta.uid] = event.object
                        if event.type != "BOOKMARK":
                            yield event
                        backoff.reset()
        except errors.ExpiredError:
            await asyncio.sleep(backoff.next_s())
        except errors.TransientError as error:
            await asyncio.sleep(backoff.next_s(error.retry_after_s))

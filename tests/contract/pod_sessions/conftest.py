"""Clients open sessions in pods of a real kubelet on asyncio's own event loop, as ``strom`` does.

uvloop discards data that it has not delivered when a server closes a TLS connection without waiting
for the client, as Kubernetes' API server does (https://github.com/MagicStack/uvloop/pull/661).
"""

import asyncio
from collections.abc import Callable, Mapping


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop}

"""``python -m stromboli.monitor.data_cache``: the data cache of this node, until stopped."""

import asyncio
import contextlib

import msgspec

from stromboli.monitor.agent import reporting
from stromboli.monitor.data_cache import cache, store
from stromboli.monitor.data_cache.settings import Settings
from stromboli.shared import decoding, errors, process
from stromboli.shared.messages import base, data
from stromboli.shared.runtime import runtime

RETRY_S = 2.0
"""Seconds between two attempts to lock the folder: the previous pod of an update may still end."""
_DECODER = decoding.decoder_of(data.DataWanted)


async def serve(settings: Settings, health: runtime.Health) -> None:
    """Run until cancelled. Ready once the folder is locked and the monitor accepts reports. While
    the monitor does not respond, the cache uses the last list of wanted data. Raises
    ConfigurationError."""
    if not settings.node:
        raise errors.ConfigurationError(
            "STROM_DATA_CACHE_NODE", "not set: set it to the name of this node (spec.nodeName)"
        )
    monitor = reporting.MonitorClient(
        settings.monitor, settings.node, settings.token_file, settings.ca_file
    )
    loop, due = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(due.set)

    try:
        cached = cache.NodeCache(settings.node, settings, runtime.utc_now, wake)
    except ValueError as error:
        raise errors.ConfigurationError("STROM_DATA_CACHE_ALLOWED_ORIGINS", str(error)) from None
    health.set("monitor", "the monitor has not accepted a report yet")
    await _open(cached, health)
    try:
        while True:
            due.clear()
            try:
                wanted = await asyncio.to_thread(_pass, cached, monitor)
                await asyncio.to_thread(cached.set_wanted, wanted)  # wakes us if it is new
                health.set("monitor", None)
                health.warn("folder", None)
            except errors.ExternalError as error:
                health.set("monitor", str(error))
            except msgspec.DecodeError as error:
                health.set("monitor", f"the monitor's response is unreadable: {error}")
            except OSError as error:  # of the disk: a later pass may succeed
                health.warn("folder", str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(await asyncio.to_thread(cached.next_step_s)):
                    await due.wait()
    finally:
        cached.close()


def _pass(cached: cache.NodeCache, monitor: reporting.MonitorClient) -> data.DataWanted:
    """Execute due steps, report the copies, and return the data that the node should have. Raises
    OSError, ExternalError, DecodeError."""
    cached.step()
    return decoding.decode(_DECODER, monitor.exchange_data(base.encode(cached.report())))


async def _open(cached: cache.NodeCache, health: runtime.Health) -> None:
    """Lock the folder, as soon as no other process holds its lock."""
    while True:
        try:
            await asyncio.to_thread(cached.open)
        except store.CacheFolderError as error:
            health.set("folder", str(error))
            await asyncio.sleep(RETRY_S)
        else:
            health.set("folder", None)
            return


async def main(settings: Settings, health: runtime.Health) -> None:
    """Serve health and metrics, and the cache."""
    async with process.serve_health(health, settings.health_host, settings.health_port):
        await serve(settings, health)


if __name__ == "__main__":
    process.start("data_cache", Settings, main)

"""Probes a pod over the network, by TCP connection or HTTP GET."""

import asyncio
import contextlib

import aiohttp

from stromboli.controller.core import commands

WITHIN_S = 1.0
"""Timeout of a probe in seconds; after it the probe has failed and is repeated later."""


async def probe(requested: commands.RunProbe) -> bool:
    """Whether the pod passes: an HTTP GET returns 200 to 399, or the port accepts a connection."""
    question = requested.question
    try:
        async with asyncio.timeout(WITHIN_S):
            if question.path:
                return await _get(requested.host, question)
            _, writer = await asyncio.open_connection(requested.host, question.port)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            return True
    except (OSError, TimeoutError, ValueError, OverflowError, aiohttp.ClientError):
        return False


async def _get(host: str, question: commands.ProbeRequest) -> bool:
    name, value = question.header
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{question.port}/{question.path.lstrip('/')}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, headers={name: value} if name else None, allow_redirects=False) as answer,
    ):
        return 200 <= answer.status < 400

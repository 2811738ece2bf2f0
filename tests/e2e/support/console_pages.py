"""What tests read in the pages of the console."""

import asyncio
import re

import httpx

WITHIN_S = 90.0


def csrf_in(page: httpx.Response) -> str:
    """The value that the forms of a page carry."""
    match = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert match is not None, page.text
    return match[1]


def uid_in(page: httpx.Response) -> str:
    match = re.search(r'name="uid" value="([^"]+)"', page.text)
    assert match is not None, page.text
    return match[1]


async def shows(browser: httpx.AsyncClient, path: str, text: str) -> None:
    """Read a page until it has a text: its lists follow watches."""
    async with asyncio.timeout(WITHIN_S):
        while text not in (await browser.get(path)).text:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)

"""A headless Chromium that runs scripts in a page, by its debugging protocol."""

import asyncio
import base64
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-port=0",
)
PORT_FILE = "DevToolsActivePort"
POLL_EVERY_S = 0.1


NAVIGATED = "Inspected target navigated or closed"
"""Chromium's error for an expression whose page was left."""


class NavigatedError(Exception):
    """The page was left while an expression was evaluated."""


class Page:
    """An open page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def run(self, script: str) -> Any:
        """The value of an expression, awaited if it is a promise. Raises AssertionError."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True}
        result = await self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the debugging protocol. Raises AssertionError, and
        NavigatedError if the page was left meanwhile."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json()
            if answer.get("id") == number:
                if answer.get("error", {}).get("message") == NAVIGATED:
                    raise NavigatedError
                assert "error" not in answer, answer
                return answer.get("result", {})

    async def go(self, url: str, within_s: float) -> None:
        """Open an address, and wait until it is loaded."""
        await self.call("Page.navigate", url=url)
        await self.until(
            f"location.href !== 'about:blank' && document.readyState === 'complete' "
            f"&& performance.getEntriesByType('navigation')[0].name.startsWith({url!r})",
            within_s,
        )

    async def press(self, *keys: str) -> None:
        """Press keys one after another: a letter, ``Enter``, ``Tab`` or ``Escape``."""
        for key in keys:
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            code = {"Enter": 13, "Tab": 9, "Escape": 27}.get(key, 0)
            press = {"key": key, "windowsVirtualKeyCode": code}
            await self.call(
                "Input.dispatchKeyEvent",
                type="keyDown",
                **press,
                **({"text": text} if text else {}),
            )
            await self.call("Input.dispatchKeyEvent", type="keyUp", **press)

    async def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """The size of the window in CSS pixels."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=is_phone,
        )

    async def prefer(self, theme: str) -> None:
        """The colour scheme of the desktop: ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def screenshot(self, *, is_whole: bool = False) -> bytes:
        """The window as PNG, or the whole page."""
        taken = await self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=is_whole
        )
        return base64.b64decode(taken["data"])

    async def until(self, script: str, within_s: float) -> Any:
        """The first true value of an expression; fails with the text of the page."""
        deadline = asyncio.get_running_loop().time() + within_s
        while True:
            with contextlib.suppress(NavigatedError):  # the next page is asked again
                if value := await self.run(script):
                    return value
            if asyncio.get_running_loop().time() > deadline:
                text = await self.run("document.body.innerText")
                raise AssertionError(f"not true after {within_s:.0f} s: {script}; page: {text}")
            await asyncio.sleep(POLL_EVERY_S)


@contextlib.asynccontextmanager
async def opened(
    url: str, folder: Path, within_s: float, options: Sequence[str] = ()
) -> AsyncIterator[Page]:
    """A page in a browser of its own with further options, which ends with the block."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    assert browser, "there is no Chromium here: run `make real-tools` as root, or install it"
    profile = folder / "profile"
    words = [*OPTIONS, *options, f"--user-data-dir={profile}", url]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(browser, *words, stdout=quiet, stderr=quiet)
    try:
        async with asyncio.timeout(within_s), aiohttp.ClientSession() as session:
            address = await _page_address(session, profile / PORT_FILE)
            async with session.ws_connect(address, max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.terminate()
        await process.wait()


async def _page_address(session: aiohttp.ClientSession, port_file: Path) -> str:
    """The address at which the page is debugged, once the browser has opened it."""
    while True:
        if port := _port_in(port_file):
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [it for it in await answer.json() if it["type"] == "page"]
                    if pages:
                        address: str = pages[0]["webSocketDebuggerUrl"]
                        return address
        await asyncio.sleep(POLL_EVERY_S)


def _port_in(file: Path) -> str:
    """The first line of the file that the browser writes; empty until then."""
    return file.read_text().partition("\n")[0] if file.is_file() else ""

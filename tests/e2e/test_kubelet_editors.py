"""code-server and a terminal beside a job, in real containers and in Chromium, without kubectl."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from stromboli.shared.jobspec import debug_tools
from stromboli.testkit.parts.container_images import CODE_SERVER, TERMINAL
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.e2e.support import browser, kubelet_debug_tools
from tests.e2e.support.kubelet_debug_tools import (
    FOLDER,
    IDLE_WITHIN_S,
    JOB,
    WITHIN_S,
    forwarded,
    objects,
)
from tests.e2e.support.kubelet_system import KubeletSystem
from tests.e2e.support.polling import until

pytestmark = [pytest.mark.kubelet, pytest.mark.timeout(900)]
EDITOR, SHELL = "code-server", "terminal"
WHOLE = ["Pod", "Secret", "Service"]
ENTERS = """
document.querySelector("input[name=password]").value = "TOKEN";
document.querySelector("form").submit()
"""
FILES = "document.querySelector('.explorer-folders-view')?.innerText ?? ''"
ASKS_FOR_TRUST = "!!document.querySelector('.monaco-dialog-box')"
WELCOMES = "!!document.querySelector('.gettingStartedContainer')"
TYPES_INTO_THE_TERMINAL = """(() => {
  const input = document.querySelector('.xterm-helper-textarea');
  input?.focus();
  return !!input && document.activeElement === input;
})()"""
"""Whether there is a terminal, which then has the keyboard, as after a click into it."""
OPENS_A_TERMINAL = {
    "key": "`",
    "code": "Backquote",
    "windowsVirtualKeyCode": 192,
    "modifiers": 2,  # Control
}
SHOWN = """
Array.from({length: term.buffer.active.length}, (_, row) =>
  term.buffer.active.getLine(row).translateToString()).join()
"""


@pytest.fixture(scope="module")
def system(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeletSystem]:
    images = {
        CODE_SERVER: kubelet_tools.code_server_image,
        TERMINAL: kubelet_tools.terminal_image,
    }
    folder = tmp_path_factory.mktemp("kubelets")
    with kubelet_debug_tools.running(folder, real_tools, images) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def _round(
    system: KubeletSystem, kubelet_round: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kubelet_debug_tools.start_job(system, tmp_path_factory.mktemp("shared"))


def read(system: KubeletSystem, file: str) -> str:
    """A file in the job's folder; empty until it exists."""
    words = ("--", "sh", "-c", f"test ! -e {FOLDER}/{file} || cat {FOLDER}/{file}")
    return system.strom("job", "exec", JOB, *words).strip()


def test_an_editor_shows_the_files_of_the_job_and_its_terminal_writes_one(
    system: KubeletSystem, tmp_path: Path
) -> None:
    """With the token alone, and as the job's user."""
    system.strom("job", "exec", JOB, "--", "sh", "-c", f"echo 1 >{FOLDER}/of-the-job")
    kubelet_debug_tools.attach(system, EDITOR, CODE_SERVER)
    with forwarded(system, EDITOR) as address:
        entered = httpx.post(f"{address}/login", data={"password": "guessed"}, timeout=WITHIN_S)
        assert not entered.cookies
        token = kubelet_debug_tools.token(system, EDITOR)
        asyncio.run(edit(system, address, token, tmp_path))
    assert objects(system, EDITOR) == WHOLE
    system.strom("job", "detach", JOB, "--tool", EDITOR)
    until(lambda: objects(system, EDITOR), lambda found: not found, WITHIN_S)


async def edit(system: KubeletSystem, address: str, token: str, folder: Path) -> None:
    """Log in, look at the files, and type a command."""
    async with browser.opened(f"{address}/", folder, WITHIN_S) as page:
        await page.until("!!document.querySelector('input[name=password]')", WITHIN_S)
        await page.run(ENTERS.replace("TOKEN", token))
        await page.until(f"({FILES}).includes('of-the-job')", WITHIN_S)
        await page.until(ASKS_FOR_TRUST, WITHIN_S)
        await page.press("Enter")
        await page.until(f"!({ASKS_FOR_TRUST})", WITHIN_S)
        await page.until(WELCOMES, WITHIN_S)  # this takes the keyboard from what is open before
        await page.call("Input.dispatchKeyEvent", type="keyDown", **OPENS_A_TERMINAL)
        await page.call("Input.dispatchKeyEvent", type="keyUp", **OPENS_A_TERMINAL)
        await page.until(TYPES_INTO_THE_TERMINAL, WITHIN_S)
        await page.press(*"echo $((6*7))-$(id -u) >typed", "Enter")
        await asyncio.to_thread(
            until, lambda: read(system, "typed"), lambda text: text == "42-1000", WITHIN_S
        )


def test_a_terminal_asks_for_the_token_and_ends_when_it_is_idle(
    system: KubeletSystem, tmp_path: Path
) -> None:
    """Its page stays open; nothing is typed for a minute."""
    kubelet_debug_tools.attach(system, SHELL, TERMINAL, "--idle", "1m")
    with forwarded(system, SHELL) as address:
        assert httpx.get(address, timeout=WITHIN_S).status_code == httpx.codes.UNAUTHORIZED
        token = kubelet_debug_tools.token(system, SHELL)
        asyncio.run(type_and_idle(system, address, token, tmp_path))
    assert system.user.phase(JOB) == "Running"


@contextlib.asynccontextmanager
async def opened_terminal(
    address: str, token: str, folder: Path, within_s: float
) -> AsyncIterator[browser.Page]:
    """The page of the terminal, which has the keyboard."""
    url = address.replace("://", f"://{debug_tools.TOOLS[SHELL].user}:{token}@")
    async with browser.opened(url, folder, within_s) as page:
        await page.until(f"!!window.term && ({SHOWN}).includes('$')", WITHIN_S)
        yield page


async def type_and_idle(system: KubeletSystem, address: str, token: str, folder: Path) -> None:
    """Type a command, then wait until the tool is gone."""
    async with opened_terminal(address, token, folder, WITHIN_S + IDLE_WITHIN_S) as page:
        await page.press(*"echo $((6*7))-$(id -u)", "Enter")
        await page.until(f"({SHOWN}).includes('42-1000')", WITHIN_S)
        assert objects(system, SHELL) == WHOLE
        await asyncio.to_thread(
            until, lambda: objects(system, SHELL), lambda found: not found, IDLE_WITHIN_S
        )


def test_a_terminal_ends_with_its_last_connection_and_leaves_nothing(
    system: KubeletSystem, tmp_path: Path
) -> None:
    kubelet_debug_tools.attach(system, SHELL, TERMINAL)
    with forwarded(system, SHELL) as address:
        token = kubelet_debug_tools.token(system, SHELL)
        asyncio.run(open_and_close(address, token, tmp_path))
        until(lambda: objects(system, SHELL), lambda found: not found, WITHIN_S)
    assert "ToolEnded" in system.kubectl("get", "events")


async def open_and_close(address: str, token: str, folder: Path) -> None:
    """Open the page until it has a prompt."""
    async with opened_terminal(address, token, folder, WITHIN_S):
        pass

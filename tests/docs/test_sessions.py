"""What consoles on our pages show is what happens: their commands run, in order, a page at a time.

A tutorial starts its own system, as its reader does; guides share one with process nodes.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import blocks
from tests.docs.blocks import ROOT, Step
from tests.e2e import conftest

WITHIN_S, POLL_EVERY_S = 120.0, 0.2
TUTORIALS = ("tutorial",)
GUIDES = tuple(
    str(page.relative_to(ROOT))
    for page in blocks.PAGES
    if page.stem not in TUTORIALS
    and any(block.language == "console" for block in blocks.of_page(page))
)
LOOKING = ("explain", "list", "view", "describe", "history", "logs", "get")
"""Commands that change nothing: what they show may take a moment to become so."""


class Shell:
    """A folder with the examples, and ``strom`` on the path."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self._folder = folder
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
        self._environment = {
            "PATH": path,
            "HOME": str(folder),
            "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"],
            "COLUMNS": "200",
        }
        if url:
            self._environment["STROM_SERVER"] = url
        self._background: list[subprocess.Popen[bytes]] = []

    def page(self, name: str) -> None:
        """Do what the page does: write its files, run its commands, compare what they print."""
        for block in blocks.of_page(ROOT / name):
            if block.file:
                (self._folder / block.file).write_text(block.text)
            if block.language == "console":
                for step in blocks.steps(block):
                    printed = self._run(step)
                    assert step.printed(printed), f"{block.title}: {step.command}\n{printed}"

    def _run(self, step: Step) -> str:
        if step.command.endswith("&"):
            return self.start(step)
        deadline = time.monotonic() + WITHIN_S
        printed = self._once(step.command)
        may_look_again = any(word in LOOKING for word in step.command.split()[:3])
        while may_look_again and not step.printed(printed) and time.monotonic() < deadline:
            time.sleep(POLL_EVERY_S)
            printed = self._once(step.command)
        return printed

    def succeed(self, command: str) -> None:
        """Run a command that must not fail."""
        ended = self._ended(command)
        assert ended.returncode == 0, f"{command}\n{ended.stderr}"

    def _once(self, command: str) -> str:
        """What it printed; progress, on stderr, only if it failed."""
        ended = self._ended(command)
        return ended.stdout + (ended.stderr if ended.returncode else "")

    def _ended(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def start(self, step: Step) -> str:
        """Start in the background and return when the expected output was printed."""
        written = self._folder / "background.log"
        with written.open("wb") as output:
            self._background.append(
                subprocess.Popen(
                    ["bash", "-c", f"exec {step.command.rstrip('& ')}"],
                    cwd=self._folder,
                    env=self._environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
        deadline = time.monotonic() + WITHIN_S
        while not step.printed(written.read_text()) and time.monotonic() < deadline:
            time.sleep(POLL_EVERY_S)
        return written.read_text()

    def close(self) -> None:
        """End what was started here."""
        for process in self._background:
            process.terminate()
        for process in self._background:
            process.wait(WITHIN_S)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TUTORIALS)
def test_every_command_of_a_tutorial_prints_the_documented_output(
    name: str, tmp_path: Path
) -> None:
    shell = Shell(tmp_path)
    try:
        shell.page(f"docs/{name}.md")
    finally:
        shell.close()


@pytest.mark.timeout(600)
def test_the_first_commands_of_the_readme_work(tmp_path: Path) -> None:
    """Those of the first terminal, where the system runs, and of the second one."""
    found = list(blocks.of_page(ROOT / "README.md"))
    first = next(
        number
        for number, block in enumerate(found)
        if any(each.startswith("strom up") for each in blocks.commands(block))
    )
    shell = Shell(tmp_path)
    try:
        for command in (*blocks.commands(found[first]), *blocks.commands(found[first + 1])):
            alone = command.partition("#")[0].strip()
            if alone == "strom up":
                shell.start(Step(alone, "REST ...\n"))
            else:
                shell.succeed(alone)
    finally:
        shell.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guides")
    with conftest.embedded(folder, "--process-nodes", "2", "--cpu", "16") as running:
        yield running.url


@pytest.mark.skipif(sys.platform != "linux", reason="process nodes need Linux")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", GUIDES)
def test_every_command_of_a_guide_prints_the_documented_output(
    name: str, url: str, tmp_path: Path
) -> None:
    Shell(tmp_path, url).page(name)

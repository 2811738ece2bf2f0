"""Records docs/pictures/terminal.svg: a terminal in which a user's first commands run.

    python -m tools.docs.terminal_recording

Starts `strom up` with simulated nodes in a temporary folder, runs the commands in a
pseudo-terminal, and writes their output as an SVG whose lines appear at the times at which they
were printed. Pauses are cut to one second. `make check` does not compare the file, since its times
differ.
"""

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from rich.text import Text

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "pictures" / "terminal.svg"
UP = ("up", "--nodes", "4", "--cpu", "4", "--port", "0")
COMMANDS = (
    "strom apply -f examples/gang.yaml",
    "strom job wait gang",
    "strom job run wide --replicas 64 --requests cpu=1",
    "strom explain wide",
    "strom job list",
)
COLUMNS, PAUSE_S, LINE_PX, CHARACTER_PX = 100, 1.0, 19, 8
STYLE = (
    "text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #e5e7eb; "
    "white-space: pre; } .typed { fill: #7dd3fc; }"
)


class Line(NamedTuple):
    """A line of the screen. ``at_s``: when it appears, in seconds; ``is_typed``: it is a command of
    the user."""

    at_s: float
    text: str
    is_typed: bool = False


def run(command: str, environment: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """The lines that a command prints on a terminal, each with the seconds since its start."""
    main, terminal = pty.openpty()
    started, partial = time.monotonic(), b""
    with subprocess.Popen(
        command.split(), env=environment, cwd=ROOT, stdin=terminal, stdout=terminal, stderr=terminal
    ):
        os.close(terminal)
        while True:
            # Reading from a pty raises an error once its last program has ended.
            try:
                chunk = os.read(main, 4096) if select.select([main], [], [], 60)[0] else b""
            except OSError:
                chunk = b""
            if not chunk:
                break
            *lines, partial = (partial + chunk).split(b"\n")
            yield from ((time.monotonic() - started, plain(line)) for line in lines)
    os.close(main)


def plain(line: bytes) -> str:
    """The text of a line as the terminal shows it: without colour codes and overwritten parts."""
    last = line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]
    return Text.from_ansi(last).plain.rstrip()


def recorded(environment: Mapping[str, str]) -> Iterator[Line]:
    """The lines of the commands and their output, with pauses of at most one second."""
    now_s = 0.5
    for command in COMMANDS:
        yield Line(now_s, f"$ {command}", is_typed=True)
        before_s = 0.0
        for at_s, text in run(command, environment):
            now_s += min(at_s - before_s, PAUSE_S)
            before_s = at_s
            yield Line(now_s, text)
        now_s += PAUSE_S


def drawing(lines: Sequence[Line]) -> str:
    """The SVG. A line appears at its time; viewers without animation show all lines."""
    width, height = COLUMNS * CHARACTER_PX + 32, (len(lines) + 2) * LINE_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}">',
        "<title>A terminal: a gang runs, and strom explains why another job waits</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#111827"/>',
    ]
    for number, line in enumerate(lines, start=1):
        kind = ' class="typed"' if line.is_typed else ""
        parts.append(
            f'<text x="16" y="{(number + 0.5) * LINE_PX:.0f}"{kind}>{escape(line.text)}'
            f'<set attributeName="visibility" to="hidden" end="{line.at_s:.1f}s"/></text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Record the commands and write the SVG."""
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory(prefix="strom-recording-") as folder:
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}", "HOME": folder, "XDG_STATE_HOME": folder,
            "TERM": "xterm-256color", "COLUMNS": str(COLUMNS),
        }  # fmt: skip
        with subprocess.Popen(
            [programs / "strom", *UP, "--state", folder], env=environment, text=True,
            stdout=subprocess.PIPE,
        ) as server:  # fmt: skip
            try:
                address = next(
                    found[1] for line in server.stdout or ()
                    if (found := re.match(r"REST\s+(\S+)", line))
                )  # fmt: skip
                lines = list(recorded({**environment, "STROM_SERVER": address}))
            finally:
                server.terminate()
    FILE.write_text(drawing(lines), encoding="utf-8")


if __name__ == "__main__":
    main()

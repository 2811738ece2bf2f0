"""``strom simulate``: what the scheduler would decide, without a cluster."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stromboli.scheduler.core import simulate

app = typer.Typer(no_args_is_help=True, help="Try the scheduler's decisions without a cluster.")


class Failure(msgspec.Struct, frozen=True):
    """A case that could not be run."""

    name: str
    error: str


class _Named(msgspec.Struct):
    name: str = ""


@app.callback()
def _group() -> None:
    """Try the scheduler's decisions without a cluster."""


@app.command()
def session(
    cases: Annotated[
        list[Path],
        typer.Argument(help="Case files: name, now, config and objects as JSON.", metavar="CASE"),
    ],
) -> None:
    """Run one scheduling session per case; print its decisions, a line of JSON each.

    A case that cannot be run prints its name and the error, the others go on, and the exit code
    is 1.
    """
    has_failed = False
    for path in cases:
        answer = decide(path)
        has_failed = has_failed or isinstance(answer, Failure)
        typer.echo(msgspec.json.encode(answer).decode())
    if has_failed:
        raise typer.Exit(1)


def decide(path: Path) -> simulate.Outcome | Failure:
    """The decisions of a case file, or why there are none."""
    raw = b""
    try:
        raw = path.read_bytes()
        return simulate.simulate(raw)
    except Exception as error:  # whatever one case brings about, the others go on
        text = str(error) if isinstance(error, ValueError | OSError) else repr(error)
        return Failure(_name(raw) or path.stem, text)


def _name(raw: bytes) -> str:
    """The case's own name, as far as it can be read."""
    try:
        return msgspec.json.decode(raw, type=_Named).name
    except msgspec.DecodeError:
        return ""

"""``strom simulate``: what the scheduler would decide, without a cluster."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stromboli.cli import manifests
from stromboli.cli.errors import CommandError
from stromboli.local import packing, replaying
from stromboli.scheduler import configured, discovery
from stromboli.scheduler.core import simulate

app = typer.Typer(no_args_is_help=True, help="Try the scheduler's decisions without a cluster.")


app.command()(packing.pack)
app.command("replay")(replaying.again)


class Failure(msgspec.Struct, frozen=True):
    """A case that could not be run."""

    name: str
    error: str


Answer = simulate.Outcome | Failure


class _Named(msgspec.Struct):
    name: str = ""


@app.callback()
def _group() -> None:
    """Try the scheduler's decisions without a cluster."""


@app.command()
def session(
    cases: Annotated[
        list[Path] | None,
        typer.Argument(help="Case files: name, now, config and objects as JSON.", metavar="CASE"),
    ] = None,
    objects: Annotated[
        list[str] | None,
        typer.Option(
            "--objects",
            metavar="FILE",
            help="Manifests of a cluster, such as `strom cluster dump` prints: YAML or JSON, many "
            "documents, lists, directories, - for stdin. Repeat it for more files.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Scheduler configuration for --objects, as volcano-scheduler.conf. "
            "[default: the built-in one]"
        ),
    ] = None,
    now: Annotated[
        str | None,
        typer.Option(help="The session's time for --objects (RFC 3339). [default: now]"),
    ] = None,
) -> None:
    """Run one scheduling session per case, or one over --objects; print a line of JSON each.

    A case that cannot be run prints its name and the error, the others go on, and the exit code
    is 1.
    """
    if bool(cases) == bool(objects):
        raise typer.BadParameter("name case files, or --objects and --config")
    if cases and (config is not None or now is not None):
        raise typer.BadParameter("--config and --now are for --objects: a case has its own")
    answers = [decide(path) for path in cases] if cases else [decide_on(objects or [], config, now)]
    for answer in answers:
        typer.echo(msgspec.json.encode(answer).decode())
    if any(isinstance(answer, Failure) for answer in answers):
        raise typer.Exit(1)


def decide(path: Path) -> Answer:
    """The decisions of a case file, or why there are none."""
    raw = b""

    def run() -> simulate.Outcome:
        nonlocal raw
        raw = path.read_bytes()
        return simulate.simulate(raw)

    return _answered(run, lambda: _name(raw) or path.stem)


def decide_on(files: list[str], config: Path | None, now: str | None) -> Answer:
    """The decisions on manifests by a configuration file, or why there are none."""
    name = Path(files[0]).stem

    def run() -> simulate.Outcome:
        registry = discovery.registry()
        loaded = (
            configured.default(registry)
            if config is None
            else configured.parse(config.read_text(encoding="utf-8"), str(config), registry)
        )
        for warning in loaded.warnings:
            typer.echo(f"strom: {warning}", err=True)
        found = [manifest.document for manifest in manifests.read(files, sys.stdin)]
        closed = simulate.run(loaded.configuration, simulate.seen(found, _time(now)), registry.find)
        for complaint in closed.complaints:
            typer.echo(f"strom: {complaint}", err=True)
        return simulate.outcome(name, closed)

    return _answered(run, lambda: name)


def _answered(run: Callable[[], simulate.Outcome], name: Callable[[], str]) -> Answer:
    try:
        return run()
    except Exception as error:  # whatever one case brings about, the others go on
        known = isinstance(error, ValueError | OSError | CommandError)
        return Failure(name(), str(error) if known else repr(error))


def _time(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"--now {text}: it has no time zone; write it as 2026-01-31T12:00:00Z")
    return found


def _name(raw: bytes) -> str:
    """The case's own name, as far as it can be read."""
    try:
        return msgspec.json.decode(raw, type=_Named).name
    except msgspec.DecodeError:
        return ""

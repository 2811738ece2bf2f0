"""``strom simulate session``: scheduling sessions without a cluster."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import typer

from stromboli.cli import files
from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.embedded import scheduler_file
from stromboli.embedded.simulation import manifest_objects
from stromboli.scheduler import discovery
from stromboli.scheduler.core import simulate
from stromboli.shared import decoding


class Failure(msgspec.Struct, frozen=True):
    """The printed result of a case that could not be run."""

    name: str
    error: str


class _Named(msgspec.Struct):
    name: str = ""


def session(
    *,
    cases: list[Path] | None,
    objects: list[str] | None,
    config: Path | None,
    now: datetime | None,
) -> None:
    """Run the sessions and print a line for each."""
    if bool(cases) == bool(objects):
        raise typer.BadParameter("specify either case files or --objects")
    if cases and (config is not None or now is not None):
        raise typer.BadParameter("--config and --now require --objects: a case file contains both")
    if objects:
        _show(decide_on(objects, config, now))
        return
    has_failed = False
    for path in cases or []:
        try:
            answer = decide(path)
        except CommandError as error:
            output.show_error(error.lines())
            has_failed = True
            continue
        _show(answer)
        has_failed |= isinstance(answer, Failure)
    if has_failed:
        raise typer.Exit(1)


def decide(path: Path) -> simulate.Outcome | Failure:
    """Return the decisions of a case file, or a failure. Raises CommandError if the file cannot be
    read.
    """
    raw = files.text(str(path))
    try:
        return simulate.simulate(raw)
    except Exception as error:  # an error of one case does not stop the others
        known = isinstance(error, ValueError)
        return Failure(_name(raw) or path.stem, str(error) if known else repr(error))


def decide_on(objects: list[str], config: Path | None, now: datetime | None) -> simulate.Outcome:
    """Return the decisions on manifests with a configuration file. Raises CommandError."""
    registry = discovery.discover_plugins()
    loaded = scheduler_file.read(None if config is None else str(config))
    for warning in loaded.warnings:
        output.show_note(f"strom: {warning}")
    cache = manifest_objects.cluster(objects, sys.stdin, now or datetime.now(UTC))
    closed = simulate.run(loaded.configuration, cache, registry.find)
    for complaint in closed.complaints:
        output.show_note(f"strom: {complaint}")
    return simulate.summarize(Path(objects[0]).stem, closed)


def _show(answer: simulate.Outcome | Failure) -> None:
    output.show_lines([msgspec.json.encode(answer).decode()])


def _name(raw: str) -> str:
    """Return the name of the case, as far as it can be decoded."""
    try:
        return decoding.from_json(raw, _Named).name
    except msgspec.DecodeError:
        return ""

"""``strom simulate session``: its options."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded.commands import times


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
            "documents, lists, directories, - for stdin. May be repeated.",
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
        datetime | None,
        typer.Option(
            parser=times.parse_time,
            metavar="TIME",
            help="The session's time for --objects (RFC 3339). [default: now]",
        ),
    ] = None,
) -> None:
    """Run scheduling sessions and print lines of JSON.

    One session runs for each case file, or one on the cluster of --objects.

    For a case that cannot be run, its name and the error are printed; one that cannot be read is
    reported on stderr. The other cases are run, and the exit code is 1.
    """
    from stromboli.embedded import simulate

    simulate.session(cases=cases, objects=objects, config=config, now=now)

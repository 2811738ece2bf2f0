"""``strom scheduler``: its commands and their options."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stromboli.cli import options

app = typer.Typer(no_args_is_help=True, help="Check a scheduler configuration before it applies.")


class Format(StrEnum):
    """Values of ``--output``."""

    TABLE = "table"
    JSON = "json"


@app.callback()
def _group() -> None:
    """Check a scheduler configuration before it applies."""


@app.command()
def check(
    new: Annotated[
        Path,
        typer.Argument(help="The new configuration, as volcano-scheduler.conf.", metavar="NEW"),
    ],
    current: Annotated[
        Path | None,
        typer.Option(
            help="The configuration in force. [default: the built-in one]", metavar="FILE"
        ),
    ] = None,
    objects: Annotated[
        list[str] | None,
        typer.Option(
            "--objects",
            metavar="FILE",
            help="The cluster, as `strom cluster dump` prints it, instead of the server's; - for "
            "stdin. May be repeated.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Also run the recorded sessions of this folder of `strom up`, which may be "
            "running. [default: .strom, if it has a log, without --objects and --kafka]",
            metavar="FOLDER",
        ),
    ] = None,
    kafka: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Also run the recorded sessions of this broker."),
    ] = "",
    cluster_name: Annotated[
        str, typer.Option(help="Name of the cluster: the prefix of its topics.")
    ] = "default",
    last: Annotated[
        int, typer.Option(min=1, help="How many recorded sessions are run, the newest ones.")
    ] = 100,
    output_format: Annotated[
        Format, typer.Option("--output", "-o", help="Output format.", case_sensitive=False)
    ] = Format.TABLE,
    server: options.Server = None,
) -> None:
    """Show what a new scheduler configuration would decide differently.

    Both configurations decide on the present state of the cluster, and the new one also on recorded
    sessions. Errors and warnings of the file are shown with their lines. Nothing is changed.

    The exit code is 0 if nothing differs, 1 if something does, 2 if the file or another input
    cannot be used, and 3 if the server cannot be reached.
    """
    from stromboli.embedded import scheduler_check

    scheduler_check.check(
        new=new,
        current=current,
        objects=objects,
        state=state,
        kafka=kafka,
        cluster_name=cluster_name,
        last=last,
        output_format=output_format,
        server=server,
    )

"""``strom simulate replay``: its options."""

from pathlib import Path
from typing import Annotated

import typer

from stromboli.embedded import state_folder


def replay(
    state: Annotated[
        Path,
        typer.Option(help="The folder of `strom up`, which may be running."),
    ] = state_folder.STATE,
    kafka: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Read the log from this broker instead.")
    ] = "",
    cluster_name: Annotated[
        str, typer.Option(help="Name of the cluster: the prefix of its topics.")
    ] = "default",
    config: Annotated[
        list[Path] | None,
        typer.Option(
            help="A scheduler configuration that was in force. May be repeated. "
            "[default: the built-in one]"
        ),
    ] = None,
    instead: Annotated[
        Path | None,
        typer.Option(help="Decide with this configuration instead of the one in force."),
    ] = None,
) -> None:
    """Run recorded sessions again and print lines of JSON.

    The log keeps sessions of the last two weeks.

    Each session starts from the recorded state, and its decisions must equal the recorded ones byte
    for byte; with --instead, it shows the decisions of another configuration. Exit code 1:
    decisions differ where they must be equal, or a session could not be run. The last line, on
    stderr, counts them.
    """
    from stromboli.embedded import replay_sessions

    replay_sessions.replay(
        state=state, kafka=kafka, cluster_name=cluster_name, config=config, instead=instead
    )

"""``strom history backup FILE`` and ``restore FILE``: the history's database as one file.

They open the database itself, not REST: a restore precedes the service.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from stromboli.cli.errors import CommandError
from stromboli.cli.render import output
from stromboli.shared import errors

ENTRY_POINTS = "stromboli.history"
"""The entry point group of the history's backup and restore: the CLI has no database."""
VARIABLE = "STROM_HISTORY_DATABASE"
STATE = Path(".strom")

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup: one compressed file.")]
DatabaseUrl = Annotated[
    str,
    typer.Option(
        "--database",
        metavar="URL",
        envvar=VARIABLE,
        show_envvar=False,
        help="sqlite:///FILE or postgresql://USER@HOST/DATABASE, whose password is in "
        f"{VARIABLE}_PASSWORD. [default: {VARIABLE}, or the database of --state]",
    ),
]
State = Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Folder of `strom up`.")]


def backup(file: File, database: DatabaseUrl = "", state: State = STATE) -> None:
    """Write the history's database to a file while it is used.

    The file contains all tables as one transaction sees them, and the position in the log up to
    which they are complete. It can be restored into SQLite and into PostgreSQL.
    """
    _run("backup", file, database, state)


def restore(file: File, database: DatabaseUrl = "", state: State = STATE) -> None:
    """Fill an empty database of the history from a backup.

    Nothing is written if the database has rows, or if the file is incomplete. The service then
    reads the log from the position of the backup.
    """
    _run("restore", file, database, state)


def _run(action: str, file: Path, database: str, state: Path) -> None:
    from stromboli.shared import entry_points  # 25 ms that other commands need not pay

    plugins = tuple(entry_points.of_group(ENTRY_POINTS).select(name=action))
    if not plugins:
        why = "it needs the package stromboli-history, which is not installed"
        raise CommandError(f"history {action}", why, "install stromboli-history")
    run: Any = plugins[0].load()
    url = database or f"sqlite:///{(state / 'embedded' / 'history.db').resolve()}"
    try:
        rows = run(file, url, os.environ)
    except errors.ExternalError as error:
        next_step = "name another file, or another database: --database URL or --state FOLDER"
        raise CommandError(f"history {action}", str(error), next_step) from None
    counted = ", ".join(f"{count} {table}" for table, count in sorted(rows.items()) if count)
    output.show_note(f"{action} {file}: {counted or 'no rows'}")

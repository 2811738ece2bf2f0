"""``python -m stromboli.history.backup_command backup|restore FILE``: saves the store to one file,
or restores it, where ``strom history backup`` is not installed.

The database is the one of the service's settings (``STROM_HISTORY_DATABASE``).
"""

import argparse
import asyncio
import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stromboli.history.settings import Settings
from stromboli.history.store import backup as store_backup
from stromboli.history.store.database import Database
from stromboli.shared import errors
from stromboli.shared.runtime import settings as settings_reader

ACTIONS = {"backup": store_backup.backup, "restore": store_backup.restore}


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the command; returns the summary. Exits with the reason if it is refused."""
    parser = argparse.ArgumentParser(
        prog="python -m stromboli.history.backup_command", description=__doc__
    )
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("file", type=Path)
    options = parser.parse_args(arguments)
    try:
        rows = _run(options.action, options.file, "", environment)
    except errors.ExternalError as error:
        sys.exit(str(error))
    counted = ", ".join(f"{count} {table}" for table, count in sorted(rows.items()))
    return f"{options.action} {options.file}: {counted}"


def _run(action: str, file: Path, url: str, environment: Mapping[str, str]) -> dict[str, int]:
    """Execute an action on a database, that of the settings without ``url``; returns the number of
    rows by table. Raises UnavailableError, ConfigurationError."""
    try:
        settings = settings_reader.load(Settings, "history", environment)
    except settings_reader.SettingsError as error:
        raise errors.ConfigurationError("settings of the history", str(error)) from None

    async def run() -> dict[str, int]:
        opened = Database(url or settings.database, settings.database_password, "history-backup")
        try:
            return await ACTIONS[action](opened, file)
        finally:
            await opened.close()

    return asyncio.run(run())


backup = functools.partial(_run, "backup")
restore = functools.partial(_run, "restore")
"""For ``strom history``: (file, URL of the database, environment) -> rows by table."""

if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1:], os.environ)}\n")

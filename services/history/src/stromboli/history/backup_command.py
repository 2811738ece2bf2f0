"""``python -m stromboli.history.backup_command backup|restore FILE``: saves the store to one file,
or restores it.

The database is the one of the service's settings (``STROM_HISTORY_DATABASE``).
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stromboli.history.settings import Settings
from stromboli.history.store import backup
from stromboli.history.store.database import Database
from stromboli.shared import errors
from stromboli.shared.runtime import settings as settings_reader

ACTIONS = {"backup": backup.backup, "restore": backup.restore}


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the command; returns the summary. Exits with the reason if it is refused."""
    parser = argparse.ArgumentParser(
        prog="python -m stromboli.history.backup_command", description=__doc__
    )
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("file", type=Path)
    asked = parser.parse_args(arguments)
    try:
        settings = settings_reader.load(Settings, "history", environment)
        rows = asyncio.run(_run(settings, asked.action, asked.file))
    except (settings_reader.SettingsError, errors.ExternalError) as error:
        sys.exit(str(error))
    counted = ", ".join(f"{count} {table}" for table, count in sorted(rows.items()))
    return f"{asked.action} {asked.file}: {counted}"


async def _run(settings: Settings, action: str, file: Path) -> dict[str, int]:
    opened = Database(settings.database, settings.database_password, "history-backup")
    try:
        return await ACTIONS[action](opened, file)
    finally:
        await opened.close()


if __name__ == "__main__":
    sys.stdout.write(f"{main(sys.argv[1:], os.environ)}\n")

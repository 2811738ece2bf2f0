"""The scheduler's configuration from a file that a user names."""

from stromboli.cli import files
from stromboli.cli.errors import CommandError
from stromboli.scheduler import configured, discovery


def read(file: str | None) -> configured.Loaded:
    """What the file says; the built-in configuration without one. Raises CommandError, with a
    detail for each mistake."""
    registry = discovery.registry()
    if file is None:
        return configured.default(registry)
    try:
        return configured.parse(files.text(file), file, registry)
    except configured.FileError as error:
        raise CommandError(
            file, "it cannot be used", "correct it", details=tuple(error.lines)
        ) from None

"""The scheduler's configuration from a file that a user names."""

from stromboli.cli import files
from stromboli.cli.errors import CommandError
from stromboli.scheduler import configuration_file, discovery


def read(file: str | None) -> configuration_file.LoadedConfiguration:
    """Read the file; return the built-in configuration without one. Raises CommandError with a
    detail for each error.
    """
    registry = discovery.discover_plugins()
    if file is None:
        return configuration_file.load_default(registry)
    try:
        return configuration_file.parse(files.text(file), file, registry)
    except configuration_file.ConfigurationFileError as error:
        raise CommandError(
            file,
            "it is not a valid scheduler configuration",
            "correct it",
            details=tuple(error.lines),
        ) from None

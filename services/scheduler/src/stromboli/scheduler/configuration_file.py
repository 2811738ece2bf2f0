"""The configuration file: read and validated as a whole, and polled while the service runs.

A file with errors is not applied: the configuration in use stays. Changes are detected by content,
since the modification time of a mounted ConfigMap, which is replaced by a symbolic link, is not
reliable.
"""

from pathlib import Path

import msgspec

from stromboli.scheduler.core import config_dry_run, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.shared.formats import documents


class LoadedConfiguration(msgspec.Struct, frozen=True):
    """A usable configuration, its origin, and a line for each warning."""

    configuration: configuration.Configuration
    origin: str
    warnings: tuple[str, ...] = ()


class ConfigurationFileError(ValueError):
    """The file cannot be used; ``lines``: ``file:line: key: problem; next step`` for each error."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def load_default(registry: plugins.Registry) -> LoadedConfiguration:
    """The built-in configuration, for a scheduler without a configuration file."""
    checked = config_dry_run.dry_run(config_reader.DEFAULT, registry.find, registry.names)
    return LoadedConfiguration(checked.configuration, "built in")


def parse(text: str, name: str, registry: plugins.Registry) -> LoadedConfiguration:
    """Parse a configuration (YAML or JSON). Raises ConfigurationFileError."""
    try:
        parsed_documents = list(documents.read(text))
    except documents.DocumentError as error:
        place = f"{name}:{error.line}" if error.line else name
        raise ConfigurationFileError([f"{place}: {error.problem}; {error.next_step}"]) from None
    if len(parsed_documents) != 1:
        count = f"{len(parsed_documents)} documents" if parsed_documents else "nothing"
        raise ConfigurationFileError(
            [f"{name}: it contains {count}; write one document with actions and tiers"]
        )
    ((document, tree),) = parsed_documents

    def line(mistake: config_reader.ConfigMistake) -> str:
        return f"{name}:{tree.line_at(mistake.place)}: {mistake}"

    try:
        checked = config_dry_run.dry_run(document, registry.find, registry.names)
    except config_reader.ConfigurationError as error:
        raise ConfigurationFileError([line(mistake) for mistake in error.mistakes]) from None
    return LoadedConfiguration(
        checked.configuration, name, tuple(line(each) for each in checked.warnings)
    )


class ConfigurationFile:
    """The configuration file of the scheduler, read again when its content changes."""

    def __init__(self, path: Path, registry: plugins.Registry) -> None:
        self.path = path
        self._registry = registry
        self._last_content: bytes | str | None = None

    def read_if_changed(self) -> LoadedConfiguration | None:
        """Read and parse the file; None if its content is the same as the last time.

        Raises ConfigurationFileError if the content cannot be used. The next call with the same
        content returns None.
        """
        try:
            content: bytes | str = self.path.read_bytes()
        except OSError as error:
            content = error.strerror or str(error)
        if content == self._last_content:
            return None
        self._last_content = content
        if isinstance(content, str):
            raise ConfigurationFileError([f"{self.path}: {content}; specify a readable file"])
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise ConfigurationFileError(
                [f"{self.path}: byte {error.start} is not UTF-8; save the file as UTF-8"]
            ) from None
        return parse(text, str(self.path), self._registry)

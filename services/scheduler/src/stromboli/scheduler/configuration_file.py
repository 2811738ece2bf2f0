"""The configuration file: read whole, checked whole, and looked at again while the service runs.

A file that cannot be used changes nothing. The content is what is compared: a mounted ConfigMap
is exchanged by a symbolic link, and times of files say nothing then.
"""

from pathlib import Path

import msgspec

from stromboli.scheduler.core import config_dry_run, plugins
from stromboli.scheduler.core.config import config_reader, configuration
from stromboli.shared.formats import documents


class Loaded(msgspec.Struct, frozen=True):
    """A configuration in force, where it came from, and a line for each thing to look at."""

    configuration: configuration.Configuration
    origin: str
    warnings: tuple[str, ...] = ()


class FileError(ValueError):
    """The file cannot be used; a line ``file:line: key: problem; next step`` for each reason."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def default(registry: plugins.Registry) -> Loaded:
    """What is in force where no file is named."""
    checked = config_dry_run.checked(config_reader.DEFAULT, registry.find, registry.names)
    return Loaded(checked.configuration, "built in")


def parse(text: str, name: str, registry: plugins.Registry) -> Loaded:
    """The configuration in a text (YAML or JSON). Raises FileError."""
    try:
        found = list(documents.read(text))
    except documents.DocumentError as error:
        place = f"{name}:{error.line}" if error.line else name
        raise FileError([f"{place}: {error.problem}; {error.next_step}"]) from None
    if len(found) != 1:
        count = f"{len(found)} documents" if found else "nothing"
        raise FileError([f"{name}: it holds {count}; write one document with actions and tiers"])
    ((document, tree),) = found

    def line(mistake: config_reader.Mistake) -> str:
        return f"{name}:{tree.line_at(mistake.place)}: {mistake}"

    try:
        checked = config_dry_run.checked(document, registry.find, registry.names)
    except config_reader.ConfigurationError as error:
        raise FileError([line(mistake) for mistake in error.mistakes]) from None
    return Loaded(checked.configuration, name, tuple(line(each) for each in checked.warnings))


class File:
    """A configuration file that may change."""

    def __init__(self, path: Path, registry: plugins.Registry) -> None:
        self.path = path
        self._registry = registry
        self._seen: bytes | str | None = None

    def look(self) -> Loaded | None:
        """What it says, or None if that is what it said the last time.

        Raises FileError, once for each content or reason that cannot be used.
        """
        try:
            content: bytes | str = self.path.read_bytes()
        except OSError as error:
            content = error.strerror or str(error)
        if content == self._seen:
            return None
        self._seen = content
        if isinstance(content, str):
            raise FileError([f"{self.path}: {content}; name a file that can be read"])
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise FileError(
                [f"{self.path}: byte {error.start} is not UTF-8; write it as text"]
            ) from None
        return parse(text, str(self.path), self._registry)

"""The operator's configuration file of HyperNode sources, which is reloaded while the service runs.

Contents are compared instead of file times, since a mounted ConfigMap is updated by replacing a
symbolic link. An invalid file is reported once, and the previous configuration stays in effect.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stromboli.controller.core.store import job_relations, topology_sources
from stromboli.shared import decoding
from stromboli.shared.formats import documents

KEY = "networkTopologyDiscovery"


class FileError(ValueError):
    """The file, or a file that it names, cannot be used. The message names the file, the error, and
    how to fix it."""


class _FileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class TopologyFile:
    """Reads the file and the files that it names."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._seen: tuple[str, ...] | None = None

    def poll(self) -> Mapping[str, topology_sources.Source] | None:
        """The sources by name, or None if they are unchanged. Raises FileError, once for each
        content that cannot be used."""
        if self._path is None:
            return None
        text, error = _read(self._path)
        entries: list[topology_sources.SourceEntry] = []
        if not error:
            try:
                entries = _entries(text)
            except ValueError as cause:
                error = f"{self._path}: {cause}"
        named: list[tuple[Path, str]] = []
        for entry in entries if not error else ():
            if entry.source == "file":
                try:
                    path = self._path.parent / decoding.convert(entry.config, _FileConfig).path
                except msgspec.ValidationError as cause:
                    error = f"{self._path}: source file: {cause}"
                    break
                own, error = _read(path)
                named.append((path, own))
        contents = (text, error, *(own for _, own in named))
        if contents == self._seen:
            return None
        self._seen = contents
        if error:
            raise FileError(error)
        return _sources(self._path, entries, named)


def _read(path: Path) -> tuple[str, str]:
    """The text of the file and the error of reading it; one of them is empty."""
    try:
        return path.read_text(encoding="utf-8"), ""
    except (OSError, UnicodeDecodeError) as error:
        return "", f"{path}: {error}; specify a readable file"


def _entries(text: str) -> list[topology_sources.SourceEntry]:
    """The enabled sources. Raises ValueError."""
    try:
        yaml_documents: list[Any] = [document for document, _ in documents.read(text)]
    except documents.DocumentError as error:
        raise ValueError(f"line {error.line}: {error.problem}; {error.next_step}") from None
    if len(yaml_documents) != 1 or not isinstance(yaml_documents[0], dict):
        raise ValueError(f"the file must be one YAML document with {KEY}")
    try:
        entries = decoding.convert(
            yaml_documents[0].get(KEY) or [], list[topology_sources.SourceEntry]
        )
    except msgspec.ValidationError as error:
        raise ValueError(f"{KEY}: {error}") from None
    enabled = [entry for entry in entries if entry.enabled]
    names = [entry.source for entry in enabled]
    for name in names:
        if name not in job_relations.SOURCES:
            raise ValueError(
                f"{KEY}: source {name!r} is none of {', '.join(job_relations.SOURCES)}"
            )
        if names.count(name) > 1:
            raise ValueError(f"{KEY}: source {name} is listed twice; merge its entries")
    return enabled


def _sources(
    path: Path, entries: list[topology_sources.SourceEntry], named: list[tuple[Path, str]]
) -> Mapping[str, topology_sources.Source]:
    sources: dict[str, topology_sources.Source] = {}
    texts = iter(named)
    for entry in entries:
        where = path
        try:
            if entry.source == "label":
                sources["label"] = topology_sources.labels(entry.config)
            else:
                where, text = next(texts)
                sources["file"] = topology_sources.switches(text)
        except ValueError as error:
            raise FileError(f"{where}: {error}") from None
    return sources

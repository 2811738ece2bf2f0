"""Reads manifests as ``kubectl`` does: files, directories, stdin; YAML and JSON; several documents.

It is stricter in one respect: a duplicate key is an error, where kubectl keeps the last value.
Every document has its position, so that errors of the server are shown with file and line.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from stromboli.cli import files
from stromboli.cli.errors import CommandError
from stromboli.shared.formats import documents

Document = dict[str, Any]
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
_WORDS = {str: "text", list: "a list", int: "a number", float: "a number", bool: "true or false"}
_FLOWING = re.compile(r"\s*\{")


class Manifest(msgspec.Struct, frozen=True):
    """A document and its position. ``tree`` is its YAML tree; JSON has none."""

    document: Document
    file: str
    line: int
    tree: documents.Tree | None = None

    @property
    def title(self) -> str:
        """Kind and name, such as ``Job train``."""
        name = (self.document.get("metadata") or {}).get("name", "without a name")
        return f"{self.document.get('kind')} {name}"

    def place(self, path: str) -> str:
        """``file:line`` of a path such as ``spec.tasks[0].name``, or of its nearest existing
        parent.
        """
        line = self.line if self.tree is None else self.tree.line_at(path)
        return f"{self.file}:{line}"


def read(names: Iterable[str], stdin: Iterable[str] = ()) -> list[Manifest]:
    """All documents of the files, directories (not recursive) and ``-``; lists are split into their
    items.

    Raises CommandError with file and line for an invalid manifest, and for no document at all.
    """
    manifests = [
        part
        for name in names
        for file, text in _texts(name, stdin)
        for manifest in parse(text, file)
        for part in _members(manifest)
    ]
    if not manifests:
        raise CommandError(
            ", ".join("stdin" if name == STDIN else name for name in names),
            "it contains no object",
            "specify a file with a manifest",
        )
    return manifests


def parse(text: str, file: str) -> list[Manifest]:
    """The non-empty documents of one file. Raises CommandError with the line."""
    if file.endswith(".json") or _FLOWING.match(text):
        try:
            return list(_of_json(text, file))
        except json.JSONDecodeError as error:
            if file.endswith(".json"):
                raise CommandError(
                    f"{file}:{error.lineno}", f"not JSON: {error.msg}", "correct this line"
                ) from None
    return list(_of_yaml(text, file))


def _texts(name: str, stdin: Iterable[str]) -> Iterator[tuple[str, str]]:
    if name == STDIN:
        yield "stdin", "".join(stdin)
        return
    path = Path(name)
    paths = [path]
    if path.is_dir():
        paths = sorted(file for file in path.iterdir() if _is_manifest(file))
        if not paths:
            raise CommandError(
                name,
                "no manifest in this directory",
                f"specify one with files that end in {', '.join(SUFFIXES)}",
            )
    for file in paths:
        yield str(file), files.text(str(file), instead="specify a manifest")


def _is_manifest(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.is_file()


def _members(manifest: Manifest) -> Iterator[Manifest]:
    document = manifest.document
    kind = document.get("kind")
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        raise CommandError(
            f"{manifest.file}:{manifest.line}",
            "not a Kubernetes object: it has no apiVersion or no kind",
            "add them, such as apiVersion: batch.volcano.sh/v1alpha1 and kind: Job",
        )
    items = document.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield manifest
        return
    trees = manifest.tree and manifest.tree.child("items")
    for index, item in enumerate(items):
        tree = trees and trees.child(str(index))
        line = manifest.line if tree is None else tree.line
        yield from _members(_manifest(item, manifest.file, line, tree))


def _manifest(document: Any, file: str, line: int, tree: documents.Tree | None) -> Manifest:
    if not isinstance(document, dict):
        raise CommandError(
            f"{file}:{line}",
            f"not a Kubernetes object, but {_WORDS.get(type(document), 'a value')}",
            "write a mapping with apiVersion, kind and metadata",
        )
    return Manifest(document, file, line, tree)


class _DuplicateKeyError(ValueError):
    """A JSON object has a key twice."""


def _of_json(text: str, file: str) -> Iterator[Manifest]:
    decoder = json.JSONDecoder(object_pairs_hook=_reject_duplicate_keys)
    at = 0
    while (at := len(text) - len(text[at:].lstrip())) < len(text):
        line = text.count("\n", 0, at) + 1
        try:
            document, at = decoder.raw_decode(text, at)
        except _DuplicateKeyError as error:
            raise CommandError(f"{file}:{line}", str(error), "keep one of them") from None
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise CommandError(f"{file}:{line}", f"not readable: {what}", "correct it") from None
        yield _manifest(document, file, line, None)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> Document:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _DuplicateKeyError(f"{twice!r} occurs twice in one object of this document")
    return document


def _of_yaml(text: str, file: str) -> Iterator[Manifest]:
    try:
        for document, tree in documents.read(text):
            yield _manifest(document, file, tree.line, tree)
    except documents.DocumentError as error:
        place = f"{file}:{error.line}" if error.line else file
        raise CommandError(place, error.problem, error.next_step) from None

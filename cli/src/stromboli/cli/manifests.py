"""Manifests as ``kubectl`` takes them: files, directories, stdin; YAML and JSON; many documents.

Stricter in one thing: a key that stands twice is refused instead of the last one winning. Every
document remembers where it stands, so that a refusal by the server is told with file and line.

YAML is read as Kubernetes reads it, which is neither plain YAML 1.1 nor 1.2: dates stay text, and
``12:30`` is text and not a number of base 60.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from stromboli.cli.errors import CommandError

Document = dict[str, Any]
SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)
_STEP = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|([^.\[\]]+)')
_FLOWING = re.compile(r"\s*\{")


class Manifest(msgspec.Struct, frozen=True):
    """A document and where it stands. ``node`` is its YAML tree; JSON has none."""

    document: Document
    file: str
    line: int
    node: yaml.Node | None = None

    @property
    def title(self) -> str:
        """``Job train``."""
        name = (self.document.get("metadata") or {}).get("name", "without a name")
        return f"{self.document.get('kind')} {name}"

    def place(self, path: str) -> str:
        """``file:line`` of what stands at a path such as ``spec.tasks[0].name``, or of the
        nearest thing around it."""
        line = self.line if self.node is None else _line_at(self.node, path)
        return f"{self.file}:{line}"


def read(names: Iterable[str], stdin: Iterable[str] = ()) -> list[Manifest]:
    """All documents of the files, directories (not below them) and ``-``, lists taken apart.

    Raises CommandError with file and line for what is no manifest; nothing at all is an error too.
    """
    found = [
        part
        for name in names
        for file, text in _texts(name, stdin)
        for manifest in parse(text, file)
        for part in _members(manifest)
    ]
    if not found:
        raise CommandError(", ".join(names), "no object in it", "name a file with a manifest")
    return found


def parse(text: str, file: str) -> list[Manifest]:
    """The documents of one file that are not empty. Raises CommandError with the line."""
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
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _is_manifest(file))
        if not files:
            wanted = ", ".join(SUFFIXES)
            raise CommandError(name, "no manifest in this directory", f"manifests end in {wanted}")
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except OSError as error:
            raise CommandError(
                str(file), error.strerror or str(error), "name a file that can be read"
            ) from None
        except UnicodeDecodeError as error:
            raise CommandError(
                str(file), f"not text: byte {error.start} is not UTF-8", "name a manifest"
            ) from None


def _is_manifest(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.is_file()


def _members(manifest: Manifest) -> Iterator[Manifest]:
    document = manifest.document
    kind = document.get("kind")
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        raise CommandError(
            f"{manifest.file}:{manifest.line}",
            "no Kubernetes object: it needs apiVersion and kind",
            "write them, such as apiVersion: batch.volcano.sh/v1alpha1 and kind: Job",
        )
    items = document.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        yield manifest
        return
    nodes = _child(manifest.node, "items")
    for index, item in enumerate(items):
        node = nodes.value[index] if isinstance(nodes, yaml.SequenceNode) else None
        line = manifest.line if node is None else _line(node)
        yield from _members(_manifest(item, manifest.file, line, node))


def _manifest(document: Any, file: str, line: int, node: yaml.Node | None) -> Manifest:
    if not isinstance(document, dict):
        raise CommandError(
            f"{file}:{line}",
            f"no Kubernetes object, but {type(document).__name__}",
            "a manifest is a mapping with apiVersion, kind and metadata",
        )
    return Manifest(document, file, line, node)


class _TwiceError(ValueError):
    """A JSON object has a key twice."""


def _of_json(text: str, file: str) -> Iterator[Manifest]:
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    at = 0
    while (at := len(text) - len(text[at:].lstrip())) < len(text):
        line = text.count("\n", 0, at) + 1
        try:
            document, at = decoder.raw_decode(text, at)
        except _TwiceError as error:
            raise CommandError(f"{file}:{line}", str(error), "keep one of them") from None
        yield _manifest(document, file, line, None)


def _once(pairs: list[tuple[str, Any]]) -> Document:
    document = dict(pairs)
    if len(document) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _TwiceError(f"{twice!r} stands twice in one object of this document")
    return document


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it; see the module."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (_NULL, _BOOL, _MERGE)]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _INT,
    re.compile(r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"^[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?$"),
    list("-+0123456789."),
)


def _of_yaml(text: str, file: str) -> Iterator[Manifest]:
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == _NULL:
                continue
            _check_keys(node, file)
            document = loader.construct_document(node)
            yield _manifest(document, file, _line(node), node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        what = error.problem or error.context or "cannot be read"
        raise CommandError(f"{file}:{line}", f"not YAML: {what}", "correct this line") from None
    except (yaml.YAMLError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise CommandError(file, f"not YAML: {what}", "correct it") from None


def _check_keys(node: yaml.Node, file: str) -> None:
    """Refuse keys that stand twice and make all of them text, as JSON has them."""
    todo, seen = [node], set()
    while todo:
        node = todo.pop()
        if id(node) in seen:  # an anchor used again
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            _check_mapping(node, file)
            todo += (value for _, value in node.value)


def _check_mapping(node: yaml.MappingNode, file: str) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise CommandError(
                f"{file}:{_line(key)}", "a key that is no text", "write a plain word as the key"
            )
        if key.tag == _MERGE:
            continue
        if first := lines.get(key.value):
            raise CommandError(
                f"{file}:{_line(key)}",
                f"{key.value!r} stands twice, first in line {first}",
                "keep one of them",
            )
        lines[key.value] = _line(key)
        key.tag = _STR


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _line_at(node: yaml.Node, path: str) -> int:
    """Greedy, since a path may have a key with dots in it without quotes."""
    steps = [quoted or index or word for quoted, index, word in _STEP.findall(path)]
    line = _line(node)
    while steps:
        for taken in range(len(steps), 0, -1):
            key, child = _entry(node, ".".join(steps[:taken]))
            if child is not None:
                line, node, steps = _line(key or child), child, steps[taken:]
                break
        else:
            return line
    return line


def _entry(node: yaml.Node, step: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        return None, node.value[int(step)]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key, value
    return None, None


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    return None if node is None else _entry(node, key)[1]

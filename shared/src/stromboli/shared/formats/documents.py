"""YAML documents as Kubernetes parses them, with the source line of each part.

The dialect is neither plain YAML 1.1 nor 1.2: dates are text, and ``12:30`` is text and not a
base-60 number. It is stricter in one respect: a duplicate key is an error, where Kubernetes keeps
the last one.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml
from yaml.composer import Composer

_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)
MOST_LEVELS = 100
"""Maximum nesting, as in admission; PyYAML and JSON encoders recurse."""
MOST_PARTS = 200_000
"""Maximum number of values in one document; an object of 3 MB has fewer."""
_STEP = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|([^.\[\]]+)')


class DocumentError(ValueError):
    """Invalid YAML. ``line``: 1-based, 0 if unknown; ``next_step``: how to fix it."""

    def __init__(self, line: int, problem: str, next_step: str) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.line = line
        self.problem = problem
        self.next_step = next_step


class Tree(msgspec.Struct, frozen=True):
    """The YAML tree of a document, with the source lines of its parts."""

    node: yaml.Node

    @property
    def line(self) -> int:
        """The first line of the tree, 1-based."""
        return _line(self.node)

    def line_at(self, path: str) -> int:
        """The line of a path such as ``spec.tasks[0].name``, or of its nearest existing parent. The
        longest matching key is taken, because a path may contain an unquoted key with dots.
        """
        steps = [quoted or index or word for quoted, index, word in _STEP.findall(path)]
        node, line = self.node, self.line
        while steps:
            for length in range(len(steps), 0, -1):
                key, child = _entry(node, ".".join(steps[:length]))
                if child is not None:
                    line, node, steps = _line(key or child), child, steps[length:]
                    break
            else:
                return line
        return line

    def child(self, key: str) -> "Tree | None":
        """The value of a key, or the item of a list at an index."""
        child_node = _entry(self.node, key)[1]
        return None if child_node is None else Tree(child_node)


def read(text: str) -> Iterator[tuple[Any, Tree]]:
    """The non-empty documents of a text. Raises DocumentError."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == _NULL:
                continue
            _check_keys(node)
            yield loader.construct_document(node), Tree(node)
    except DocumentError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be decoded"
        # libyaml reports the end of a text as a line of its own.
        line = min(mark.line, text.count("\n")) + 1 if mark else 1
        raise DocumentError(line, f"not YAML: {what}", "correct this line") from None
    except (yaml.YAMLError, ValueError) as error:
        what = str(error).splitlines()[0]
        raise DocumentError(0, f"not YAML: {what}", "correct it") from None


class _Loader(Composer, yaml.CSafeLoader):
    """The YAML dialect of the module. Limits the depth, and the size of a document after expanding
    its aliases. libyaml parses, and nodes are composed here: a quarter of the time of
    ``yaml.SafeLoader``. ``yaml.CSafeLoader`` alone has no place for these limits.
    """

    def __init__(self, text: str) -> None:
        Composer.__init__(self)
        yaml.CSafeLoader.__init__(self, text)
        self._depth = 0
        self._parts = 0
        self._sizes: dict[yaml.Node, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """As in PyYAML, with the limits of this module. Raises DocumentError."""
        event: Any = self.peek_event()
        line = event.start_mark.line + 1
        is_alias = isinstance(event, yaml.AliasEvent)
        before, self._depth = self._parts, self._depth + 1
        if self._depth > MOST_LEVELS:
            raise DocumentError(line, "nested too deeply", f"at most {MOST_LEVELS} levels")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if is_alias and node not in self._sizes:
            raise DocumentError(
                line, "an alias refers to the anchor that contains it", "write the value out"
            )
        self._parts += self._sizes[node] if is_alias else 1
        if self._parts > MOST_PARTS:
            what = f"more than {MOST_PARTS} values after expanding aliases"
            raise DocumentError(line, what, "split the document, or use fewer aliases")
        self._sizes[node] = self._parts - before
        return node


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


def _check_keys(node: yaml.Node) -> None:
    """Reject duplicate keys, and convert all keys to text, as in JSON."""
    todo, visited_ids = [node], set()
    while todo:
        node = todo.pop()
        if id(node) in visited_ids:  # the node of an alias was checked already
            continue
        visited_ids.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += node.value
        elif isinstance(node, yaml.MappingNode):
            _check_mapping(node)
            todo += (value for _, value in node.value)


def _check_mapping(node: yaml.MappingNode) -> None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise DocumentError(_line(key), "a key is not text", "use a plain word as the key")
        if key.tag == _MERGE:
            continue
        if first := lines.get(key.value):
            raise DocumentError(
                _line(key),
                f"key {key.value!r} is duplicate, first used in line {first}",
                "keep one of them",
            )
        lines[key.value] = _line(key)
        key.tag = _STR


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _entry(node: yaml.Node, step: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        return None, node.value[int(step)]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key, value
    return None, None

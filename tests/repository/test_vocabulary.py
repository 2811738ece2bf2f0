"""Names and texts use the terms of Kubernetes, Kafka and Volcano, not private metaphors.

A reader greps for standard terms. ``REPLACEMENTS`` maps each word that must not occur in a name to
the standard term, ``PHRASES`` maps each phrase that must not occur in docstrings, comments and
string literals of product code to plain English. Neither has a word with a technical meaning.
"""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPLACEMENTS = {
    "abreast": "caught up",
    "anew": "again",
    "anybody": "a user, a client",
    "asker": "principal",
    "census": "index",
    "desk": "consumer",
    "disorder": "fault injection",
    "disordered": "with fault injection",
    "door": "admission",
    "furnish": "set up",
    "happening": "event",
    "happenings": "events",
    "heard": "received, accepted",
    "hears": "receives",
    "ladder": "batch",
    "lanes": "work queue",
    "nearness": "topology constraint",
    "nobody": "no client, no service",
    "parking": "unschedulable",
    "picture": "cache, snapshot",
    "pictures": "diagrams, images",
    "rooms": "packages",
    "somebody": "another client",
    "stray": "unmanaged",
    "strays": "unmanaged pods",
    "told": "notified, reported",
    "untold": "not published",
    "vouch": "mark as synced",
    "vouched": "marked as synced",
    "vouches": "marks as synced",
    "whoever": "the leader, the owner, any client",
    "wish": "request, requirement",
    "wishes": "requests, requirements",
}
"""Word -> what is written instead."""
VAGUE = {
    "found": "what it is: pod, rows, problems",
    "given": "what it is: inputs, settings, arguments",
    "held": "usage, allocated, requested",
    "made": "what it is: job, pod, result",
    "said": "message, text, annotation",
    "seen": "snapshot, earlier names",
    "shown": "output format, text",
    "taken": "allocated, used names",
    "who": "principal, identity, user",
}
"""Names of parameters and local variables of product code that say what happens to a thing, not
what it is."""
PHRASES = {
    r"(?:is|are) away": "is unavailable",
    r"(?:is|are|was|were|be|been|being) told": "is notified, receives",
    r"(?:say|says|said) (?:why|so|nothing|what|which|no)": "gives the reason, contains",
    r"(?:stands?|stood) (?:in|on|at|for|there|under|behind|before|beside|below|among)": "is in",
    r"a line each": "one line each",
    r"anew": "again",
    r"anybody": "a user, a client",
    r"asked (?:again|for|of|about|whether)": "requested, called again",
    r"becomes? of|became of": "the result of",
    r"comes? to (?:be|stand|say|name)": "becomes, is",
    r"farewell|goodbyes?": "close, disconnect",
    r"for ever": "indefinitely",
    r"(?:go|goes|gone|going|went) on": "continues",
    r"hears?|heard": "receives, accepts",
    r"in vain": "without effect",
    r"in the words of": "as in",
    r"lets? go of": "releases",
    r"makes? no sense": "is invalid",
    r"nobody": "no client, no service",
    r"not there": "does not exist",
    r"says the dice": "injected fault",
    r"signs? of life": "heartbeat",
    r"slips? of the pen": "typo",
    r"somebody": "another client",
    r"takes? in": "applies",
    r"the (?:door|outside|one before)": "admission, external systems, the previous one",
    r"tells? (?:of|whose|whom|no)": "reports",
    r"told (?:of|by|apart|from)": "notified, distinguished",
    r"trouble": "error",
    r"waits? out|waited out": "retries",
    r"what (?:is|are) (?:asked|meant|there)": "the request, the existing ones",
    r"whoever": "the leader, the owner, any client",
    r"wish(?:es)?": "request, requirement",
}
"""Regular expression of a phrase -> what is written instead."""
EXCEPTIONS: dict[str, str] = {}
"""Name -> why it may keep the word; at most 15."""
MOST_EXCEPTIONS = 15
# Parsing all files takes longest: one that has none of the words is not parsed. Ignoring case makes
# these searches 20 times as slow, so their texts are in lower case.
ANY_VAGUE = re.compile(rf"\b(?:{'|'.join(VAGUE)})\b")
ANY_PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b")


def sources() -> list[Path]:
    """The committed Python files and those that git would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every definition, parameter, variable and field in a module."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def words(name: str) -> set[str]:
    """The words of a name in snake case or camel case, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def offences(path: Path) -> Iterator[str]:
    """A line for every name of a file that contains a replaced word."""
    where = path.relative_to(ROOT).as_posix()
    source = path.read_text()
    lower = source.lower()
    tree = ast.parse(source if any(word in lower for word in REPLACEMENTS) else "")
    for line, name in ((1, path.stem), *names(tree)):
        if name not in EXCEPTIONS:
            for word in sorted(words(name) & set(REPLACEMENTS)):
                yield f"{where}:{line}: {name}: instead of {word!r} write {REPLACEMENTS[word]}"


def test_no_name_contains_a_replaced_word() -> None:
    found = [line for path in sources() for line in offences(path)]
    assert not found, "\n".join(found)


def local_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of every parameter and variable."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.MatchAs(name=str(name))
            ):
                yield node.lineno, name


def test_no_variable_of_the_product_says_only_what_happens_to_a_thing() -> None:
    fields = re.compile(r"^    \w+: ")  # of structs, whose class says what they describe
    lines: list[str] = []
    for path in sources():
        where = path.relative_to(ROOT).as_posix()
        if "/src/" not in where or where.startswith("tests/"):
            continue
        source = path.read_text()
        if not ANY_VAGUE.search(source):
            continue
        text = source.splitlines()
        lines += [
            f"{where}:{line}: {name}: write {VAGUE[name]}"
            for line, name in local_names(ast.parse(source))
            if name in VAGUE and not fields.match(text[line - 1])
        ]
    assert not lines, "\n".join(lines)


def has_phrase(text: str) -> bool:
    return ANY_PHRASE.search(" ".join(text.lower().split())) is not None


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string literal, docstring and comment of a module; no comments if none
    has a phrase."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    if not any(has_phrase(line.partition("#")[2]) for line in source.splitlines()):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def text_offences(source: str) -> Iterator[tuple[int, str, str]]:
    """(line, phrase, what to write instead) of every text of a module with a phrase."""
    for line, text in texts(source):
        if not has_phrase(text):
            continue
        words_of_text = " ".join(text.split())
        for phrase, instead in PHRASES.items():
            if match := re.search(rf"\b(?:{phrase})\b", words_of_text, re.IGNORECASE):
                yield line, match[0], instead


def test_no_text_of_product_code_contains_a_phrase() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: instead of {phrase!r} write {instead}"
        for path in sources()
        if "src" in path.relative_to(ROOT).parts[1:3] and path.relative_to(ROOT).parts[0] != "tests"
        for line, phrase, instead in text_offences(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_there_are_few_exceptions() -> None:
    assert len(EXCEPTIONS) <= MOST_EXCEPTIONS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("is_told", {"is", "told"}),
        ("ToldByWatch", {"told", "by", "watch"}),
        ("HTTPDoor", {"http", "door"}),
        ("MOST_PARKED", {"most", "parked"}),
        ("untold2", {"untold"}),
        ("fulltoldword", {"fulltoldword"}),
    ],
)
def test_a_name_is_split_into_words(name: str, expected: set[str]) -> None:
    assert words(name) == expected

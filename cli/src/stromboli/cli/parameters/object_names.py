"""Names of objects as ``-o name`` prints them, and shorter: ``job.batch.volcano.sh/train`` and
``job/train`` are ``train`` wherever a command takes the name of a job. Pure.

A parameter takes names of a kind if its metavar is the word of that kind: ``JOB``, ``[QUEUE]...``.
"""

import re
from typing import Any

import typer

_WORD = re.compile(r"[\[]?(?P<word>[A-Z]+)\]?(?:\.\.\.)?")


def bare(metavar: str | None, value: Any) -> Any:
    """The value of a parameter, with the kinds removed from object names. Raises BadParameter for
    the name of another kind."""
    if isinstance(value, list):
        return [bare(metavar, one) for one in value]
    match = _WORD.fullmatch(metavar or "")
    if match is None or not isinstance(value, str) or "/" not in value:
        return value
    return without_kind(match["word"].lower(), value)


def without_kind(word: str, text: str) -> str:
    """The name in ``KIND/NAME`` or ``KIND.GROUP/NAME``; any other text is unchanged. ``word``: the
    expected kind. Raises BadParameter for another kind."""
    from stromboli.cli.parameters import resources

    expected = resources.named(word)
    before, slash, name = text.partition("/")
    kind, dot, group = before.partition(".")
    named = resources.named(kind)
    if not slash or expected is None or named is None or (dot and group != named.kind.group):
        return text
    if named is not expected:
        raise typer.BadParameter(
            f"{text!r} is a {named.word}, not a {word}", param_hint=word.upper()
        )
    return name

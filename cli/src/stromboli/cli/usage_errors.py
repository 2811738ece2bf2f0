"""Error messages for invalid options, with the invalid value. Pure.

Typer validates values with Pydantic, whose messages contain the expectation but not the value.
Pydantic's error details contain both; the messages are built from them here, as its documentation
recommends for custom messages.
"""

import difflib
import re
from collections.abc import Iterable
from typing import Any

import typer

FIELDS = "FIELD=VALUE"
"""In the metavar of an argument that takes fields of a job."""
MOST_SUGGESTED = 3
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")

WORDS = {
    "int_parsing": "{input!r} is not a whole number",
    "int_from_float": "{input!r} is not a whole number",
    "float_parsing": "{input!r} is not a number",
    "greater_than_equal": "{input} is less than {ge}",
    "less_than_equal": "{input} is more than {le}",
    "value_error": "{error}",
}
"""Pydantic's error type -> message."""


def parser_message(error: typer.TyperException) -> str:
    """The parser's message without a full stop."""
    details = _validation_message(error)
    if details is not None and isinstance(error, typer.BadParameter):
        form = WORDS.get(details["type"], "{input!r}: {msg}")
        error.message = form.format(**details, **details.get("ctx", {}))
    if possible := getattr(error, "possibilities", None):
        return f"{error.message}{_question(possible)}"
    return _in_our_words(error.format_message().strip().rstrip("."))


def extra_arguments(message: str) -> str:
    """The unexpected arguments that the parser's message names; empty for another message."""
    match = _EXTRA.fullmatch(message)
    return "" if match is None else match[1]


def _in_our_words(message: str) -> str:
    """The parser's message with the choices in one line, and without "argument(s)"."""
    if words := extra_arguments(message):
        return f"unexpected {'argument' if len(words.split()) == 1 else 'arguments'}: {words}"
    named, several, choices = message.partition(". Choose from:")
    return f"{named}: one of {' '.join(choices.split())}" if several else message


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean job?`` for a misspelt word; empty if no known one is close."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(word, names, MOST_SUGGESTED)
    begun = [name for name in names if len(word) > 2 and name.startswith(word)]
    return _question(list(dict.fromkeys([*close, *begun]))[:MOST_SUGGESTED])


def fields_help(error: typer.TyperException, command: Any) -> str:
    """How to write an option as a field, for a command that takes fields of a job; else empty."""
    option = getattr(error, "option_name", None)
    takes_fields = any(FIELDS in (getattr(it, "metavar", None) or "") for it in command.params)
    if not option or not takes_fields:
        return ""
    from stromboli.cli.job_specs import job_fields

    field = job_fields.OPTIONS.get(option, "time-limit")
    return f"write {FIELDS} without dashes: {field}=VALUE; fields are {job_fields.FIELDS}"


def sbatch_help(error: typer.TyperException, command: Any) -> str:
    """What to write instead of an option of sbatch, for ``strom job run``; else empty."""
    option = getattr(error, "option_name", None)
    if not option or command.name != "run":
        return ""
    from stromboli.cli.job_specs import sbatch

    instead = sbatch.counterpart(option)
    return f"{option} is an option of sbatch; {instead}" if instead else ""


def _question(names: list[str]) -> str:
    if not names:
        return ""
    head, last = ", ".join(names[:-1]), names[-1]
    return f"; did you mean {head + ' or ' if head else ''}{last}?"


def option_help(error: typer.TyperException, command: Any) -> list[str]:
    """The help of the option whose value is missing, as lines."""
    wanted = getattr(error, "option_name", None)
    return [
        f"  {', '.join(param.opts)}: {param.help}"
        for param in command.params
        if wanted in param.opts and getattr(param, "help", None)
    ]


def _validation_message(error: typer.TyperException) -> dict[str, Any] | None:
    """The first error of a value, as Pydantic reports it."""
    errors = getattr(error.__cause__, "errors", None)
    return None if errors is None else errors()[0]

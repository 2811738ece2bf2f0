"""Error messages for invalid options, with the invalid value. Pure.

Typer validates values with Pydantic, whose messages contain the expectation but not the value.
Pydantic's error details contain both; the messages are built from them here, as its documentation
recommends for custom messages.
"""

from typing import Any

import typer

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
    found = _validation_message(error)
    if found is not None and isinstance(error, typer.BadParameter):
        form = WORDS.get(found["type"], "{input!r}: {msg}")
        error.message = form.format(**found, **found.get("ctx", {}))
    return error.format_message().strip().rstrip(".")


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

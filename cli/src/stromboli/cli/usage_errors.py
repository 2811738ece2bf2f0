"""What is wrong on a command line, in our words, with what was written. Pure.

The parser has values checked by Pydantic, whose messages leave out the value and say what it should
be; what was wrong stands beside them as data, from which the words are made here, as Pydantic's
documentation has it for messages of one's own.
"""

from typing import Any

import typer

WORDS = {
    "int_parsing": "{input!r} is no whole number",
    "int_from_float": "{input!r} is no whole number",
    "float_parsing": "{input!r} is no number",
    "greater_than_equal": "{input} is less than {ge}",
    "less_than_equal": "{input} is more than {le}",
    "value_error": "{error}",
}
"""Kind of mistake -> what is said of it."""


def parser_message(error: typer.TyperException) -> str:
    """The parser's message without a full stop."""
    found = _validation_message(error)
    if found is not None and isinstance(error, typer.BadParameter):
        form = WORDS.get(found["type"], "{input!r}: {msg}")
        error.message = form.format(**found, **found.get("ctx", {}))
    return error.format_message().strip().rstrip(".")


def option_help(error: typer.TyperException, command: Any) -> list[str]:
    """The help of an option that lacks its value."""
    wanted = getattr(error, "option_name", None)
    return [
        f"  {', '.join(param.opts)}: {param.help}"
        for param in command.params
        if wanted in param.opts and getattr(param, "help", None)
    ]


def _validation_message(error: typer.TyperException) -> dict[str, Any] | None:
    """The first mistake in a value, as Pydantic tells it."""
    errors = getattr(error.__cause__, "errors", None)
    return None if errors is None else errors()[0]

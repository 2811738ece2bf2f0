"""Plugin arguments in the syntax of Volcano: Go's ``flag`` package.

``-x``, ``--x`` and ``--x=v``; a number or text may also be the next argument. Parsing ends at the
first argument that is not a flag.
"""

from collections.abc import Mapping, Sequence

import msgspec

Value = bool | int | str
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


class Arguments(msgspec.Struct, frozen=True):
    """Parsed arguments. ``fault``: the error that ended parsing, or empty; values before it are
    valid. ``ignored``: arguments that the plugin does not have, but another version may have.
    """

    values: dict[str, Value]
    fault: str = ""
    ignored: tuple[str, ...] = ()


def read(arguments: Sequence[str], defaults: Mapping[str, Value]) -> Arguments:
    """Parse arguments. An unknown argument is skipped, together with the value that seems to follow
    it."""
    values = dict(defaults)
    rest, ignored = list(arguments), list[str]()
    fault = ""
    while rest and not fault:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument == "-":
            fault = f"{argument}: not a flag; write --name=value"
            continue
        if argument == "--":
            break
        name, has_value, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if name not in values:
            ignored.append(argument)
            if not has_value and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        if isinstance(defaults[name], bool):
            fault = _switch(values, name, has_value, text, argument)
        elif not has_value and not rest:
            fault = f"{argument}: needs a value; write {name}={defaults[name]}"
        else:
            fault = _set(values, name, text if has_value else rest.pop(0), argument)
    return Arguments(values, fault, tuple(ignored))


def _switch(values: dict[str, Value], name: str, has_value: str, text: str, whole: str) -> str:
    if has_value and text not in (*_TRUE, *_FALSE):
        return f"{whole}: write {name}=true or {name}=false"
    values[name] = not has_value or text in _TRUE
    return ""


def _set(values: dict[str, Value], name: str, text: str, whole: str) -> str:
    usual = values[name]
    if isinstance(usual, str):
        values[name] = text
        return ""
    try:
        values[name] = int(text)
    except ValueError:
        return f"{whole}: {text!r} is not a number; write {name}={usual}"
    return ""

"""Plugin arguments in the notation users know from Volcano: Go's ``flag`` package.

``-x``, ``--x`` and ``--x=v``; a number or text may also follow as the next argument. Reading ends
at the first argument that is no flag.
"""

from collections.abc import Mapping, Sequence

Value = bool | int | str
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def read(arguments: Sequence[str], defaults: Mapping[str, Value]) -> tuple[dict[str, Value], str]:
    """The values, and what is wrong (empty: nothing). What was read before a fault counts."""
    values = dict(defaults)
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("-") or argument == "-":
            return values, f"{argument}: not a flag; write --name=value"
        if argument == "--":
            break
        name, has_value, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if name not in values:
            known = ", ".join(sorted(values)) or "none"
            return values, f"{argument}: unknown, known are {known}"
        default = defaults[name]
        if isinstance(default, bool):
            if text not in (*_TRUE, *_FALSE) and has_value:
                return values, f"{argument}: write {name}=true or {name}=false"
            values[name] = not has_value or text in _TRUE
            continue
        if not has_value:
            if not rest:
                return values, f"{argument}: needs a value; write {name}={default}"
            text = rest.pop(0)
        if isinstance(default, str):
            values[name] = text
            continue
        try:
            values[name] = int(text)
        except ValueError:
            return values, f"{argument}: {text!r} is no number; write {name}={default}"
    return values, ""

"""Plugin arguments in the notation users know from Volcano: Go's ``flag`` package.

``-x``, ``--x`` and ``--x=v`` for booleans. Reading ends at the first argument that is none.
"""

from collections.abc import Mapping, Sequence

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def booleans(arguments: Sequence[str], defaults: Mapping[str, bool]) -> tuple[dict[str, bool], str]:
    """The values, and what is wrong (empty: nothing). What was read before a fault counts."""
    values = dict(defaults)
    for argument in arguments:
        if argument == "--" or not argument.startswith("-") or argument == "-":
            break
        name, has_value, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if name not in values:
            return values, f"{argument}: unknown, known are {', '.join(sorted(values))}"
        if not has_value or text in _TRUE:
            values[name] = True
        elif text in _FALSE:
            values[name] = False
        else:
            return values, f"{argument}: write {name}=true or {name}=false"
    return values, ""

"""Amounts of resources, as queues and containers state them."""

from collections.abc import Iterator

from stromboli.shared.formats import units
from stromboli.shared.jobspec.validation import naming
from stromboli.shared.messages.admission import Violation


def violations(path: str, name: str, text: str | int | float) -> Iterator[Violation]:
    """What is wrong with the amount ``text`` of the resource ``name`` at ``path``: no quantity,
    negative, or a part of a resource that is counted."""
    try:
        value = units.quantity(text)
    except ValueError as error:
        yield Violation(path=f"{path}.{name}", reason=str(error))
        return
    if value < 0:
        yield Violation(path=f"{path}.{name}", reason=f"{text} is negative", expected="0 or more")
    elif naming.is_counted(name) and value % 1:
        yield Violation(
            path=f"{path}.{name}", reason=f"{text} is not whole", expected="a whole number"
        )

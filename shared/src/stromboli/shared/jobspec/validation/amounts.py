"""Validation of resource amounts in queues and containers."""

from collections.abc import Iterator

from stromboli.shared.formats import units
from stromboli.shared.jobspec.validation import naming
from stromboli.shared.messages.admission import Violation


def violations(path: str, name: str, text: str | int | float) -> Iterator[Violation]:
    """Violations of the amount ``text`` of the resource ``name`` at ``path``: an invalid quantity,
    a negative one, or a fraction of a resource that comes in whole units."""
    try:
        value = units.quantity(text)
    except ValueError as error:
        yield Violation(path=f"{path}.{name}", reason=str(error))
        return
    if value < 0:
        yield Violation(path=f"{path}.{name}", reason=f"{text} is negative", expected="0 or more")
    elif naming.is_counted(name) and value % 1:
        yield Violation(
            path=f"{path}.{name}",
            reason=f"{text} is not a whole number",
            expected="use whole units",
        )

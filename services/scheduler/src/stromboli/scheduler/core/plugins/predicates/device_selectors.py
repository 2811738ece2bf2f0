"""Device selectors: conditions in the Common Expression Language, as in Kubernetes.

``device.driver`` is a string; ``device.attributes[domain].name`` and
``device.capacity[domain].name`` are values, with the driver as the domain of names without one.
Quantities are numbers, compared with ``compareTo``, ``isGreaterThan`` and ``isLessThan`` as in
Kubernetes.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stromboli.shared.api import core, resource
from stromboli.shared.formats import units

if TYPE_CHECKING:
    import cel

_LITERAL = re.compile(r"""["']([A-Za-z0-9._/-]+)["']""")
_ERRORS = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class SelectorError(ValueError):
    """A selector cannot be evaluated for a device."""


class Selectors:
    """Compiles each selector once.

    The first one imports ``cel``, which also loads its command-line tool and takes 0.4 s of CPU; a
    cluster without device selectors avoids this.
    """

    def __init__(self) -> None:
        self._programs: dict[str, cel.Program] = {}

    def select(self, driver: str, device: resource.Device, expressions: Sequence[str]) -> bool:
        """Return whether all expressions hold. Raises SelectorError with the expression and the
        error."""
        return all(self._holds(driver, device, expression) for expression in expressions)

    def _holds(self, driver: str, device: resource.Device, expression: str) -> bool:
        try:
            program = self._programs.get(expression)
            if program is None:
                import cel

                program = self._programs[expression] = cel.compile(expression)
            answer = program.execute(_context(driver, device, expression))
        except _ERRORS as error:
            raise SelectorError(f"selector {expression!r}: {error}") from None
        if not isinstance(answer, bool):
            raise SelectorError(
                f"selector {expression!r}: it evaluates to {answer!r}, not to true or false"
            )
        return answer


def _context(driver: str, device: resource.Device, expression: str) -> "cel.Context":
    import cel

    # An absent domain is an empty one, so that ``has(...)`` works on it.
    domains = [driver, *_LITERAL.findall(expression)]
    attributes = {name: each.value for name, each in (device.attributes or {}).items()}
    capacity = {name: _number(each.value) for name, each in (device.capacity or {}).items()}
    context = cel.Context()
    context.add_variable(
        "device",
        {
            "driver": driver,
            "attributes": _by_domain(attributes, domains),
            "capacity": _by_domain(capacity, domains),
        },
    )
    context.add_function("quantity", _number)
    context.add_function("compareTo", lambda left, right: (left > right) - (left < right))
    context.add_function("isGreaterThan", lambda left, right: left > right)
    context.add_function("isLessThan", lambda left, right: left < right)
    return context


def _by_domain(facts: Mapping[str, Any], domains: Sequence[str]) -> dict[str, dict[str, Any]]:
    attributes: dict[str, dict[str, Any]] = {domain: {} for domain in domains}
    for full, value in facts.items():
        domain, _, name = full.rpartition("/")
        attributes.setdefault(domain or domains[0], {})[name] = value
    return attributes


def _number(quantity: core.Quantity) -> int | float:
    value = units.quantity(quantity)
    return int(value) if value == value.to_integral_value() else float(value)

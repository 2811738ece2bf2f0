"""Label selectors as ``kubectl`` writes them: ``team=vision,stage!=test,tier in (a,b),gpu,!old``.

Pure. Source: Kubernetes, Labels and Selectors. An object without the label also matches ``!=`` and
``notin``.
"""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

_KEY = r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?(/[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"^(?P<key>{_KEY})\s+(?P<how>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(rf"^(?P<key>{_KEY})\s*(?P<how>==|=|!=)\s*(?P<value>[\w.-]*)$")
_BARE = re.compile(rf"^(?P<not>!?)\s*(?P<key>{_KEY})$")
_COMMA = re.compile(r",(?![^()]*\))")
"""A comma that is not inside parentheses."""


class Requirement(msgspec.Struct, frozen=True):
    """A requirement on one label."""

    key: str
    operator: Literal["in", "notin", "exists", "absent"]
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        if self.operator == "exists":
            return self.key in labels
        if self.operator == "absent":
            return self.key not in labels
        return (labels.get(self.key) in self.values) == (self.operator == "in")


Selector = tuple[Requirement, ...]
"""Requirements that must all hold; an empty selector matches every object."""


def parse(text: str) -> Selector:
    """The selector. Raises ValueError that names the invalid part."""
    return tuple(_requirement(part.strip()) for part in _COMMA.split(text) if part.strip())


def matches(selector: Selector, labels: Mapping[str, str] | None) -> bool:
    """Whether an object with these labels is selected."""
    return all(requirement.holds(labels or {}) for requirement in selector)


def _requirement(part: str) -> Requirement:
    if match := _SET.match(part):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], "in" if match["how"] == "in" else "notin", values)
    if match := _EQUAL.match(part):
        operator: Literal["in", "notin"] = "notin" if match["how"] == "!=" else "in"
        return Requirement(match["key"], operator, frozenset({match["value"]}))
    if match := _BARE.match(part):
        return Requirement(match["key"], "absent" if match["not"] else "exists")
    raise ValueError(f"{part!r} is not a label selector; write team=vision, stage!=test or !old")

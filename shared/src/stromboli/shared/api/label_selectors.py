"""Label selectors of Kubernetes' objects. Pure."""

from collections.abc import Mapping

from stromboli.shared.api import core

Labels = Mapping[str, str]


def matches(selector: core.LabelSelector, labels: Labels) -> bool:
    """Whether all parts of a selector hold. An empty selector matches every object; where
    Kubernetes defines that it matches none, the caller must check for it. An unknown operator never
    matches."""
    return all(
        labels.get(key) == value for key, value in (selector.match_labels or {}).items()
    ) and all(_holds(each, labels.get(each.key)) for each in selector.match_expressions)


def _holds(wanted: core.SelectorRequirement, value: str | None) -> bool:
    match wanted.operator:
        case "In":
            return value in wanted.values
        case "NotIn":
            return value not in wanted.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False

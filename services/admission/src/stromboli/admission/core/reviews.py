"""What is told and kept of a review, in bounded space: an object may have 100,000 mistakes."""

from collections.abc import Sequence

import msgspec

from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.shared.messages.admission import Reviewed, Violation, Way

MOST_TOLD = 1_000
"""Violations in one answer: who has more corrects these first."""
MOST_KEPT = 100
"""Violations in a record, of which the log takes 8 MiB at most."""
LONGEST_TEXT = 1_000
"""Characters of a path, a reason, an expectation, or a name, which may quote an object's own."""
_CUT = " ..."
UNKNOWN = "Unknown"
"""Whatever else somebody writes there: kinds are also the labels of a metric."""
_KINDS = frozenset(kind.kind for kind in kinds.BY_NAME.values())


def told(found: Sequence[Violation], most: int = MOST_TOLD) -> tuple[Violation, ...]:
    """The first ones, and how many more there are."""
    first = [
        msgspec.structs.replace(
            it, path=_cut(it.path), reason=_cut(it.reason), expected=_cut(it.expected)
        )
        for it in found[:most]
    ]
    if len(found) > most:
        first.append(Violation(path="", reason="and more violations"))
    return tuple(first)


def record(
    kind: str,
    document: Document,
    operation: Operation,
    user: str,
    way: Way,
    found: Sequence[Violation],
) -> Reviewed:
    """The record of a review, however strange the object. Its ``object`` is empty if it has no
    name, its ``kind`` ``Unknown`` if we have no such kind."""
    names = (_cut(patch.text_of(document, part)) for part in ("namespace", "name"))
    return Reviewed(
        kind=kind if kind in _KINDS else UNKNOWN,
        object="/".join(filter(None, names)),
        operation=operation,
        user=_cut(user),
        way=way,
        allowed=not found,
        violations=told(found, MOST_KEPT),
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - len(_CUT)] + _CUT

"""Limits the violations of a review that are reported and recorded: an object may have
100,000.
"""

from collections.abc import Sequence

import msgspec

from stromboli.shared.api import kinds
from stromboli.shared.jobspec.validation import patch
from stromboli.shared.jobspec.validation.patch import Document
from stromboli.shared.jobspec.validation.review import Operation
from stromboli.shared.messages.admission import EntryPoint, ObjectReviewed, Violation

MAX_REPORTED = 1_000
"""Maximum violations in one response."""
MAX_RECORDED = 100
"""Maximum violations in a record, whose size limit is 8 MiB."""
MAX_TEXT_LENGTH = 1_000
"""Maximum characters of a path, a reason, an expectation, or a name, which may quote an object."""
MAX_DETAIL_LENGTH = 8 * 1024
"""Maximum characters of all violations in one text: a job with a thousand violations still fits on
one screen."""
MAX_ANSWER_BYTES = 1024 * 1024
"""Maximum size of the violations in the answer to a submission over Kafka, which is a record."""
_CUT = " ..."
UNKNOWN = "Unknown"
"""Name for any other kind: kinds are labels of a metric, so their number is bounded."""
_KINDS = frozenset(kind.kind for kind in kinds.BY_NAME.values())


def truncated(violations: Sequence[Violation], limit: int = MAX_REPORTED) -> tuple[Violation, ...]:
    """The first ``limit`` violations, followed by a note if there are more."""
    first = [
        msgspec.structs.replace(
            it,
            path=_shortened(it.path),
            reason=_shortened(it.reason),
            expected=_shortened(it.expected),
        )
        for it in violations[:limit]
    ]
    if len(violations) > limit:
        first.append(Violation(path="", reason=f"and {len(violations) - limit} more violations"))
    return tuple(first)


def recordable(violations: Sequence[Violation]) -> tuple[Violation, ...]:
    """As many violations as a record has room for: ``MAX_REPORTED`` or, if they quote long texts,
    ``MAX_RECORDED``."""
    reported = truncated(violations)
    is_large = len(msgspec.json.encode(reported)) > MAX_ANSWER_BYTES
    return truncated(violations, MAX_RECORDED) if is_large else reported


def truncated_detail(detail: str, count: int) -> str:
    """The text of ``count`` violations, cut to its maximum length."""
    if len(detail) <= MAX_DETAIL_LENGTH:
        return detail
    return f"{detail[:MAX_DETAIL_LENGTH]} ... ({count} violations in all)"


def record(
    kind: str,
    document: Document,
    operation: Operation,
    user: str,
    entry_point: EntryPoint,
    violations: Sequence[Violation],
) -> ObjectReviewed:
    """The record of a review, for any object. Its ``object`` is empty if it has no name, its
    ``kind`` is ``Unknown`` for an unknown kind.
    """
    names = (_shortened(patch.text_of(document, part)) for part in ("namespace", "name"))
    return ObjectReviewed(
        kind=kind if kind in _KINDS else UNKNOWN,
        object="/".join(filter(None, names)),
        operation=operation,
        user=_shortened(user),
        entry_point=entry_point,
        allowed=not violations,
        violations=truncated(violations, MAX_RECORDED),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - len(_CUT)] + _CUT

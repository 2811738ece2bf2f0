"""When a job would start if it, or the cluster, were different, as text. Pure."""

from collections.abc import Sequence
from datetime import datetime

from stromboli.cli.render import output, start_view
from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.api.views.what_if import WhatIf

_WITH_REASON = ("blocked-by-quota", "can-never-fit")


def render(what_if: WhatIf, changes: Sequence[str], now: datetime) -> list[str]:
    """A headline, then both expected starts and what was assumed, one fact per line."""
    headline = f"{what_if.job} with {', '.join(changes)}"
    if what_if.cannot_tell or what_if.present is None or what_if.changed is None:
        return [f"{headline}: cannot tell.", f"  because    {what_if.cannot_tell}"]
    facts = [
        ("now", start_view.sentence(what_if.present, now)),
        ("then", start_view.sentence(what_if.changed, now)),
        *_difference(what_if.present, what_if.changed),
    ]
    if what_if.reason and what_if.changed.answer in _WITH_REASON:
        facts.append(("because", what_if.reason))
    facts += [("assumed", note) for note in what_if.notes]
    return [f"{headline}:", *(f"  {label:<10} {text}" for label, text in facts)]


def _difference(present: ExpectedStart, changed: ExpectedStart) -> list[tuple[str, str]]:
    """The difference between the two median starts."""
    if present.p50 is None or changed.p50 is None:
        return []
    if present.p50 == changed.p50:
        return [("median", "no difference")]
    first, last = sorted((present.p50, changed.p50))
    word = "earlier" if changed.p50 < present.p50 else "later"
    return [("median", f"{output.duration(first, last)} {word}")]

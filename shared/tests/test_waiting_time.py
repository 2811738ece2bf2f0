"""The annotation ``sla-waiting-time``: which value applies, and what is reported."""

from datetime import timedelta

import pytest

from stromboli.shared.api import meta
from stromboli.shared.jobspec import waiting_time

OURS, BARE = waiting_time.KEYS


def annotated(**annotations: str) -> meta.ObjectMeta:
    keys = {"ours": OURS, "bare": BARE}
    return meta.ObjectMeta(name="j", annotations={keys[it]: annotations[it] for it in annotations})


def test_volcanos_annotation_comes_before_the_bare_one() -> None:
    assert waiting_time.of(annotated(ours="1h", bare="2h")) == "1h"
    assert waiting_time.of(annotated(ours="", bare="2h")) == "2h"
    assert waiting_time.of(annotated()) == ""


def test_a_waiting_time_is_above_zero() -> None:
    assert waiting_time.parse("1h30m") == timedelta(hours=1, minutes=30)
    for text in ("0s", "0", "-1h"):
        with pytest.raises(ValueError, match="is not above zero: write a duration such as"):
            waiting_time.parse(text)


@pytest.mark.parametrize("text", ["1ns", "0.4us"])
def test_a_waiting_time_below_a_microsecond_is_zero(text: str) -> None:
    with pytest.raises(ValueError, match="is not above zero"):
        waiting_time.parse(text)


@pytest.mark.parametrize(
    ("annotations", "warning"),
    [
        ({"ours": "0s"}, f"metadata.annotations[{OURS}]: '0s' is not above zero: write a duration"),
        (
            {"bare": "soon"},
            f"metadata.annotations[{BARE}]: 'soon' is not a duration: write numbers",
        ),
        ({"ours": "-1h", "bare": "1h"}, f"metadata.annotations[{OURS}]: '-1h' is not above zero"),
        ({"ours": "1h", "bare": "soon"}, None),
        ({"ours": ""}, None),
        ({}, None),
    ],
)
def test_a_value_that_applies_and_cannot_be_used_is_a_warning(
    annotations: dict[str, str], warning: str | None
) -> None:
    """Volcano ignores it silently: the job would wait as if it had no limit."""
    warnings = list(waiting_time.warnings(annotated(**annotations)))
    if warning is None:
        assert not warnings
    else:
        (text,) = warnings
        assert text.startswith(warning)
        assert text.endswith("; it is ignored")

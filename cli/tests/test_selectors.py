"""Rules of label selectors: kubectl's syntax and meaning."""

import pytest

from stromboli.cli.parameters import selectors

LABELS = {"team": "vision", "stage": "test", "example.com/tier": "a"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("team=vision", True),
        ("team==vision,stage=test", True),
        ("team=speech", False),
        ("stage!=test", False),
        ("absent!=x", True),
        ("example.com/tier in (a, b),team", True),
        ("example.com/tier notin (a,b)", False),
        ("absent notin (a)", True),
        ("absent in (a)", False),
        ("team", True),
        ("absent", False),
        ("!absent", True),
        ("!team", False),
        ("team=", False),
    ],
)
def test_all_requirements_must_hold(text: str, holds: bool) -> None:
    assert selectors.matches(selectors.parse(text), LABELS) is holds


def test_an_object_without_labels_is_one_with_none() -> None:
    assert selectors.matches(selectors.parse("!team"), None)
    assert not selectors.matches(selectors.parse("team"), None)


@pytest.mark.parametrize("text", ["a=b=c", "in (a)", "a in", "-a=b", "a>1", "a in (b"])
def test_an_invalid_selector_is_reported(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector; write "):
        selectors.parse(f"team=vision,{text}")

"""Patterns of users: the syntax of Go, in time linear in the text."""

import re

import pytest

from stromboli.shared.formats import patterns
from stromboli.testkit import cpu_time


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^rack-1-.*", "rack-1-node", True),
        ("node-[0-9]+$", "rack-node-12", True),
        ("node-[0-9]+$", "rack-node-12x", False),
        ("(?i)RACK", "rack", True),
        (r"^\w+\.\d+$", "n.1", True),
        ("a|b", "xbx", True),
        ("^(?P<rack>r[0-9])$", "r1", True),
        (r"[[:alpha:]]\z", "n", True),
        ("x{1000}", "x" * 1000, True),
    ],
)
def test_a_pattern_matches_anywhere_as_in_go(pattern: str, text: str, matches: bool) -> None:
    assert bool(patterns.compile_pattern(pattern).search(text)) is matches


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("n[", "missing ]"),
        ("(?=ahead)", "invalid perl operator"),
        ("(?<!behind)", "invalid"),
        (r"(a)\1", "invalid escape sequence"),
        (r"end\Z", "invalid escape sequence"),
        ("a{1001}", "invalid repetition size"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("n" * 4097, "has 4097 characters, at most 4096"),
        ("(" * 4096, "missing )"),
        ("(x?){999}(x?){999}", "too large"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_a_pattern_that_go_refuses_or_that_is_too_large_is_refused(
    pattern: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as refused:
        patterns.compile_pattern(pattern)
    assert len(str(refused.value)) < 400, "the pattern may be long, and the message is an Event's"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "(.*a){25}b", "^(([a-z])+.)+[A-Z]"])
def test_a_pattern_with_backtracking_is_matched_in_linear_time(pattern: str) -> None:
    """Python's ``re`` takes longer than the age of the universe for the first one."""
    compiled = patterns.compile_pattern(pattern)

    def search() -> bool:
        return any(compiled.search("a" * 252 + "!") for _ in range(100))

    found, took_s = cpu_time.measured(search, enough_s=5)
    assert not found
    assert took_s <= 5

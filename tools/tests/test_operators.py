"""Tests of other projects' controllers: the versions that tools/go pins are built."""

import dataclasses
import re

import pytest

from tools.real import operators
from tools.real.operators import OPERATORS, Operator


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_the_module_of_an_operator_builds_its_programs_at_a_pinned_release(
    operator: Operator,
) -> None:
    module = operators.module_of(operator)
    text = (module / "go.mod").read_text()
    tools = re.findall(r"^tool (\([^)]*\)|.*)$", text, re.MULTILINE)
    named = sorted(" ".join(tools).translate(str.maketrans("()", "  ")).split())
    # A module with files of ours is built from a copy, in which Go's file names no tools.
    assert named == ([] if operator.added else sorted(operator.paths()))
    assert all((module / ours).is_file() for ours, _ in operator.added)
    release = operators.version(operator)
    assert f"{operator.module} {release} h1:" in (module / "go.sum").read_text()


def test_a_change_of_the_stored_files_is_another_directory() -> None:
    """Otherwise a cache that was filled before would lack the files."""
    (first, *_) = OPERATORS
    more = dataclasses.replace(first, files=(*first.files, "examples/more"))
    assert operators.directory(more) != operators.directory(first)

"""Tests of other projects' controllers: the versions that tools/go pins are built."""

import pytest

from tools.real import operators
from tools.real.operators import OPERATORS, Operator


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_the_module_of_an_operator_builds_its_program_at_a_pinned_release(
    operator: Operator,
) -> None:
    module = operators.module_of(operator)
    assert f"tool {operator.module}/cmd/{operator.program}\n" in (module / "go.mod").read_text()
    release = operators.version(operator)
    assert f"{operator.module} {release} h1:" in (module / "go.sum").read_text()


def test_a_change_of_the_stored_files_is_another_directory() -> None:
    """Otherwise a cache that was filled before would lack the files."""
    (first, *_) = OPERATORS
    more = Operator(first.name, first.module, first.program, (*first.files, "examples/more"))
    assert operators.directory(more) != operators.directory(first)

"""Every manifest of the examples is accepted unchanged."""

from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("manifest", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_admitted_whole(strom: Any, manifest: Path) -> None:
    applied = strom("apply", "-f", str(manifest))
    assert applied.exit_code == 0, applied.stderr
    assert {line.split()[-1] for line in applied.stdout.splitlines()} == {"created"}

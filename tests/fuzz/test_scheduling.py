"""A scheduling process survives any object and keeps no memory of deleted objects."""

from typing import Any

import pytest

from tests.fuzz import scheduling_process
from tests.fuzz.engine import SECONDS, SEED, TIMEOUT_S, report

ROUNDS = 80
"""In the short form: a few seconds."""
CONFIGURATIONS = {
    "usual": scheduling_process.DEFAULT_OPTIONS,
    "everything": scheduling_process.ALL_PLUGINS,
}


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_scheduling_process_survives_objects_at_the_limits_of_their_types(name: str) -> None:
    document: dict[str, Any] = CONFIGURATIONS[name]
    seconds = SECONDS / len(CONFIGURATIONS)
    result = scheduling_process.run(f"{SEED} {name}", document, rounds=ROUNDS, seconds=seconds)
    report(result)
    assert result.outcomes["decisions"], "a process that decides nothing shows nothing"

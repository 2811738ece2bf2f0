"""A scheduling process survives any object, and keeps nothing of what is gone."""

from typing import Any

import pytest

from tests.fuzz import scheduling
from tests.fuzz.engine import SECONDS, SEED, report

ROUNDS = 80
"""In the short form: a few seconds."""
CONFIGURATIONS = {"usual": scheduling.USUAL, "everything": scheduling.EVERYTHING}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_scheduling_process_survives_objects_at_the_limits_of_their_types(name: str) -> None:
    document: dict[str, Any] = CONFIGURATIONS[name]
    seconds = SECONDS / len(CONFIGURATIONS)
    report(scheduling.run(f"{SEED} {name}", document, rounds=ROUNDS, seconds=seconds))

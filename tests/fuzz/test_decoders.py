"""No input makes a decoder raise anything but its documented error, or take a second."""

from collections import Counter

import pytest

from tests.fuzz import decoders, engine

TARGETS = decoders.all_targets()
SIZES = Counter(target.group for target in TARGETS.values())


@pytest.mark.timeout(engine.TIMEOUT_S)
@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_survives_every_input(name: str) -> None:
    """``STROM_FUZZ_S`` seconds for all targets of a group together; the short form takes a few
    hundred inputs."""
    target = TARGETS[name]
    seconds = engine.SECONDS / SIZES[target.group]
    engine.report(engine.run(name, target.corpus, target.call, target.mutate, seconds=seconds))

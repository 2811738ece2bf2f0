"""``strom up``: what it refuses before anything starts."""

from pathlib import Path

import pytest

from stromboli.cli.errors import CommandError
from stromboli.embedded import commands


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ('actions: "enqueue, allocte"\n', "allocte"),
        ("actions: [\n", "bad.yaml"),
        ("tiers:\n- plugins:\n  - name: gnag\n", "gnag"),
    ],
)
def test_a_configuration_that_is_invalid_is_refused_before_anything_starts(
    tmp_path: Path, text: str, detail: str
) -> None:
    """Otherwise the scheduler would wait for a better file, and the user for the scheduler."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    state = tmp_path / "state"
    with pytest.raises(CommandError) as refused:
        commands.up(config=file, state=state)
    shown = "\n".join((str(refused.value), *refused.value.details))
    assert detail in shown
    assert not state.exists()

"""Whose job a run directory is."""

from pathlib import Path

from stromboli.miniwdl import ownership


def test_a_directory_is_abandoned_when_its_owner_has_ended(tmp_path: Path) -> None:
    with ownership.held(str(tmp_path)):
        assert not ownership.is_abandoned(str(tmp_path))
    assert ownership.is_abandoned(str(tmp_path))


def test_a_directory_of_another_machine_is_not_abandoned(tmp_path: Path) -> None:
    assert not ownership.is_abandoned(str(tmp_path / "absent"))
    assert not ownership.is_abandoned("")

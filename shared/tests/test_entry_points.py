"""Entry points are searched once, and again where packages may have been added."""

from pathlib import Path

import pytest

from stromboli.shared import entry_points

GROUP = "stromboli.tests"


def install(folder: Path, name: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = module:value\n")


def test_entry_points_are_searched_once_for_each_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of all services in one process searches them for each service and command."""
    before = entry_points.of_group(GROUP)
    assert entry_points.of_group(GROUP) is before
    install(tmp_path / "site", "theirs")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert [*entry_points.of_group(GROUP).names] == ["theirs"]
    assert [*before.names] == []

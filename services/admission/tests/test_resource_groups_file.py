"""The file of resource groups is read for each pod that is reviewed."""

from pathlib import Path

import structlog.testing

from stromboli.admission.review import resource_groups

GROUPS = """
resourceGroups:
- resourceGroup: gpu
  object: {key: namespace, value: [research]}
  schedulerName: volcano
  labels: {team: research}
"""


def test_an_unavailable_file_keeps_its_groups_and_is_reported_once(tmp_path: Path) -> None:
    """Thousands of pods may be created meanwhile."""
    path = tmp_path / "groups.yaml"
    path.write_text(GROUPS)
    file = resource_groups.ResourceGroupsFile(str(path))
    before = file.current()
    assert len(before.resource_groups) == 1
    for _ in range(2):  # it disappears twice, and is there in between
        content = path.read_text()
        path.unlink()
        with structlog.testing.capture_logs() as logged:
            assert [file.current() for _ in range(3)] == [before] * 3
        assert [entry["event"] for entry in logged] == ["resource groups not read"]
        path.write_text(content)
        assert file.current() == before

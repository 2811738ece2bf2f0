"""Rules of ``strom scheduler check`` that need no running system."""

import json
from pathlib import Path

import msgspec
from typer.testing import CliRunner, Result

from stromboli.cli.errors import UsageError
from stromboli.embedded import scheduler_check, state_folder
from stromboli.embedded.commands import scheduler
from stromboli.shared.api import kinds
from stromboli.testkit import builders

SPREAD = """actions: enqueue, allocate
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: predicates
  - name: nodeorder
"""
PACK = SPREAD.replace("nodeorder", "binpack")


def check(folder: Path, new: str, *more: str) -> Result:
    """Two nodes of which one is half used, and a gang that waits."""
    (folder / "new.yaml").write_text(new)
    (folder / "now.yaml").write_text(SPREAD)
    objs = [
        builders.make_node("n1", cpu="4"),
        builders.make_node("n2", cpu="4"),
        builders.make_pod("used", "runs", cpu="2", node="n1", phase="Running"),
        builders.make_pod_group("runs", phase="Running"),
        builders.make_pod_group("next", phase="Pending", min_resources={"cpu": "1"}),
        builders.make_queue(),
    ]
    by_struct = {kind.struct: kind for kind in kinds.BY_NAME.values()}
    items = [
        {
            "apiVersion": by_struct[type(each)].api_version,
            "kind": by_struct[type(each)].kind,
            **json.loads(msgspec.json.encode(each)),
        }
        for each in objs
    ]
    dump = folder / "cluster.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    command = ["check", str(folder / "new.yaml"), "--current", str(folder / "now.yaml")]
    return CliRunner().invoke(scheduler.app, [*command, "--objects", str(dump), *more])


def test_nothing_differs_with_the_same_rules(tmp_path: Path) -> None:
    result = check(tmp_path, f"# a comment\n{SPREAD}")
    assert result.exit_code == 0, result.output
    assert result.stdout == "present state (2 nodes, 2 PodGroups): 0 gangs differ\n"


def test_a_gang_that_is_placed_elsewhere_is_shown(tmp_path: Path) -> None:
    result = check(tmp_path, PACK)
    assert result.exit_code == scheduler_check.DIFFERS, result.output
    assert result.stdout.startswith("present state (2 nodes, 2 PodGroups): 1 gang differs\n")
    row = [cell.strip() for cell in result.stdout.splitlines()[-1].split("   ")]
    assert row == ["default/next", "1 pod on n2 (1)", "1 pod on n1 (1)"]


def test_programs_get_every_pod(tmp_path: Path) -> None:
    result = check(tmp_path, PACK, "--output", "json")
    (gang,) = json.loads(result.stdout)["gangs"]
    assert gang["changed"]["binds"] == {"n1": 1}
    assert gang["changed"]["pods"] == {}, "its pods do not exist yet"


def test_errors_of_the_file_have_lines_and_their_own_exit_code(tmp_path: Path) -> None:
    result = check(tmp_path, SPREAD.replace("name: gang", "name: gnag"))
    assert isinstance(result.exception, UsageError)
    (line,) = result.exception.details
    assert "new.yaml:5: " in line


def test_warnings_of_the_file_are_shown(tmp_path: Path) -> None:
    unknown = SPREAD.replace("- name: gang", "- name: gang\n    arguments:\n      minimum: 1")
    result = check(tmp_path, unknown)
    assert result.exit_code == 0, result.output
    assert "new.yaml:7: " in result.output


def test_a_state_folder_without_a_log_is_an_error(tmp_path: Path) -> None:
    result = check(tmp_path, SPREAD, "--state", str(tmp_path))
    assert isinstance(result.exception, UsageError)
    assert not state_folder.embedded(tmp_path).exists()

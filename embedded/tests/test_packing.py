"""``strom simulate pack``: seeds, lists that are wrong, and one JSON object on the last line."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from stromboli.cli.errors import CommandError
from stromboli.embedded import pack
from stromboli.embedded.commands import pack as commands
from stromboli.embedded.commands import simulate
from stromboli.scheduler.core.packing import policies, trace


def lists(folder: Path, pods: str = "p,1000,1,1,500,\nq,1000,1,1,300,\n") -> tuple[str, ...]:
    """Two nodes of two GPUs, and pods of these rows."""
    (folder / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,9000,9,2,A\nb,9000,9,2,A\n"
    )
    (folder / "pods.csv").write_text(
        f"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{pods}"
    )
    return "--nodes", str(folder / "nodes.csv"), "--pods", str(folder / "pods.csv")


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("42-44", [42, 43, 44]), ("42,45", [42, 45]), ("7", [7]), ("1-2, 2-3,9", [1, 2, 3, 9])],
)
def test_seeds_are_ranges_and_numbers_each_once(text: str, seeds: list[int]) -> None:
    assert pack.parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "'' is not a seed; write 42-51 or 42,45"),
        ("4-", "'4-' is not a seed"),
        ("-4", "'-4' is not a seed"),
        ("51-42", "the range is descending; write 42-51"),
        ("0-1000", "at most 1000"),
        ("1-500,1000-1500", "at most 1000"),
    ],
)
def test_an_invalid_seed_is_rejected(text: str, complaint: str) -> None:
    with pytest.raises(typer.BadParameter, match=complaint):
        pack.parse_seeds(text)


@pytest.mark.parametrize("shown", ["table", "json"])
def test_the_last_line_is_one_json_object(tmp_path: Path, shown: str) -> None:
    """Means, and the values of each seed; progress goes to stderr."""
    options = ("--policy", "best-fit", "--seeds", "42,45", "--output", shown)
    result = CliRunner().invoke(simulate.app, ["pack", *lists(tmp_path), *options])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    report = json.loads(lines[-1])
    assert (len(lines) == 1) == (shown == "json")
    assert [each["seed"] for each in report["per_seed"]] == [42, 45]
    ratios = [each["gpu_allocation_ratio_percent"] for each in report["per_seed"]]
    assert report["gpu_allocation_ratio_percent"] == pytest.approx(sum(ratios) / 2)
    assert 60 < report["gpu_allocation_ratio_percent"] <= 100
    assert report["fragmented_percent"] <= 100 - report["gpu_allocation_ratio_percent"]
    assert report["seconds"] >= 0
    assert "seed 45: " in result.stderr


@pytest.mark.parametrize(
    ("pods", "complaint"),
    [
        ("p,x,1,1,500,\n", "pods.csv:2: cpu_milli: 'x' is not a whole number"),
        ("", "pods.csv: no data after the header line"),
    ],
)
def test_an_invalid_list_is_reported_with_path_line_and_next_step(
    tmp_path: Path, pods: str, complaint: str
) -> None:
    options = lists(tmp_path, pods)
    with pytest.raises(CommandError) as caught:
        pack.read(Path(options[1]), Path(options[3]))
    assert complaint in caught.value.why
    assert "--nodes and --pods" in caught.value.next_step


def test_an_absent_or_binary_file_is_reported(tmp_path: Path) -> None:
    options = lists(tmp_path)
    with pytest.raises(CommandError, match="No such file"):
        pack.read(tmp_path / "absent.csv", Path(options[3]))
    (tmp_path / "nodes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CommandError, match="utf-8"):
        pack.read(Path(options[1]), Path(options[3]))


def test_every_policy_is_in_the_help() -> None:
    result = CliRunner().invoke(simulate.app, ["pack", "--help"], env={"COLUMNS": "300"})
    assert all(name in result.output for name in policies.POLICIES)


def test_the_help_describes_each_policy_and_each_column() -> None:
    """It is written apart from these, whose modules take long to import."""
    assert commands.DESCRIPTIONS.keys() == policies.POLICIES.keys()
    assert ", ".join(trace.NODE_COLUMNS) == commands.NODE_COLUMNS
    assert ", ".join(trace.POD_COLUMNS) == commands.POD_COLUMNS

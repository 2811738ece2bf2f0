"""``strom simulate session`` prints one line of JSON per case, independent of the others, and
reports usage errors like all commands.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stromboli.cli import main

CONFIG = {"actions": "allocate", "tiers": [{"plugins": [{"name": "gang"}]}]}


def write(folder: Path, name: str, **fields: Any) -> str:
    """A case of one node of 2 cores and a gang of two pods of one core each."""
    pods = [
        {
            "kind": "Pod",
            "metadata": {
                "name": pod,
                "namespace": "a",
                "annotations": {"scheduling.k8s.io/group-name": "g"},
            },
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"},
        }
        for pod in ("p1", "p2")
    ]
    others = [
        {"kind": "Queue", "metadata": {"name": "q"}},
        {
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "2", "pods": "9"}},
        },
        {
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "a"},
            "spec": {"minMember": 2, "queue": "q"},
            "status": {"phase": "Inqueue"},
        },
    ]
    document = {
        "name": name,
        "now": "2026-01-01T12:00:00Z",
        "config": CONFIG,
        "objects": [*others, *pods],
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(document | fields))
    return str(path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main.app, ["simulate", "session", *arguments])


def run(*paths: str) -> tuple[int, list[dict[str, Any]]]:
    result = call(*paths)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_each_case_gets_its_line_in_the_order_of_arguments(tmp_path: Path) -> None:
    """The top-level fields are those of a session's outcome."""
    code, lines = run(write(tmp_path, "two"), write(tmp_path, "one"))
    assert code == 0
    assert [line["name"] for line in lines] == ["two", "one"]
    assert lines[0] == {
        "name": "two",
        "binds": {"a/p1": "n", "a/p2": "n"},
        "evictions": [],
        "pipelined": {},
        "podGroupPhases": {"a/g": "Inqueue"},
        "taskStatusCounts": {"a/g": {"Binding": 2}},
        "explanations": {},
    }


def test_a_case_that_fails_is_named_and_the_others_continue(tmp_path: Path) -> None:
    """Bad configuration and bad JSON each print name and error; exit code 1."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    wrong = write(tmp_path, "wrong", config={"actions": "alocate"})
    code, lines = run(wrong, str(broken), write(tmp_path, "good"))
    assert code == 1
    assert [line["name"] for line in lines] == ["wrong", "broken", "good"]
    assert "'alocate' is not a known action" in lines[0]["error"]
    assert all("error" in line for line in lines[:2])
    assert lines[2]["binds"] == {"a/p1": "n", "a/p2": "n"}


def test_an_unreadable_case_is_reported_and_the_others_continue(
    tmp_path: Path,
) -> None:
    absent, binary = tmp_path / "absent.json", tmp_path / "binary.json"
    binary.write_bytes(b"\xff")
    result = call(str(absent), str(binary), str(tmp_path), write(tmp_path, "good"))
    assert result.exit_code == 1
    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["good"]
    assert result.stderr.splitlines() == [
        f"strom: {absent}: No such file or directory",
        "next: specify a readable file",
        f"strom: {binary}: not text: byte 0 is not UTF-8",
        "next: specify a file",
        f"strom: {tmp_path}: Is a directory",
        "next: specify a readable file",
    ]


def test_manifests_are_decided_on_by_a_configuration_file(tmp_path: Path) -> None:
    """A list as ``strom cluster dump`` prints it, YAML documents beside it, one line of JSON."""
    case = json.loads(Path(write(tmp_path, "case")).read_text())
    items = [{"apiVersion": "v1", **each} for each in case["objects"]]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items[:-1]}))
    rest = tmp_path / "rest.yaml"
    rest.write_text(f"---\n{json.dumps(items[-1])}\n---\n")
    config = tmp_path / "volcano-scheduler.conf"
    config.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: gang\n")
    options = ("--objects", str(dump), "--objects", str(rest), "--config", str(config))
    code, lines = run(*options, "--now", "2026-01-01T12:00:00Z")
    assert code == 0
    assert [line["name"] for line in lines] == ["dump"]
    assert lines[0]["binds"] == {"a/p1": "n", "a/p2": "n"}


def test_an_invalid_configuration_is_reported_with_its_line(tmp_path: Path) -> None:
    dump, config = tmp_path / "dump.json", tmp_path / "c.yaml"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    config.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: gangs\n")
    result = call("--objects", str(dump), "--config", str(config))
    assert (result.exit_code, result.stdout) == (1, "")
    first, detail, *_, last = result.stderr.splitlines()
    assert first == f"strom: {config}: it is not a valid scheduler configuration"
    assert detail.startswith(f"  {config}:4: tiers[0].plugins[0].name: 'gangs' is not")
    assert last == "next: correct it"


def test_files_that_are_absent_are_reported_as_everywhere(tmp_path: Path) -> None:
    """Objects and configuration: nothing on stdout, a line, the way on, exit code 1."""
    absent = tmp_path / "absent"
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    for options in (("--objects", str(absent)), ("--objects", str(dump), "--config", str(absent))):
        result = call(*options)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == (
            f"strom: {absent}: No such file or directory\nnext: specify a readable file\n"
        )


def test_an_unreadable_object_is_reported_with_its_position(tmp_path: Path) -> None:
    manifest = tmp_path / "objects.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n---\n"
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\n"
        "spec:\n  weight: many\n"
    )
    result = call("--objects", str(manifest))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"strom: {manifest}:9: Queue q: spec.weight: Expected `int`")


@pytest.mark.parametrize(
    ("text", "why"),
    [("2026-01-01T12:00:00", "has no time zone"), ("yesterday", "is not a time")],
)
def test_a_time_that_is_none_or_has_no_zone_is_wrong_usage(
    tmp_path: Path, text: str, why: str
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    result = call("--objects", str(dump), "--now", text)
    assert result.exit_code == 2
    assert f"Invalid value for '--now': '{text}' {why}; write it as" in result.stderr

"""``strom simulate session`` prints one line of JSON per case, whatever the others are."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from stromboli.local import simulate

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


def run(*paths: str) -> tuple[int, list[dict[str, Any]]]:
    result = CliRunner().invoke(simulate.app, ["session", *paths])
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


def test_a_case_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    """Bad configuration, bad JSON and an absent file each print name and error; exit code 1."""
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    wrong = write(tmp_path, "wrong", config={"actions": "alocate"})
    code, lines = run(wrong, str(broken), str(tmp_path / "absent.json"), write(tmp_path, "good"))
    assert code == 1
    assert [line["name"] for line in lines] == ["wrong", "broken", "absent", "good"]
    assert "'alocate' is not a known action" in lines[0]["error"]
    assert all("error" in line for line in lines[:3])
    assert lines[3]["binds"] == {"a/p1": "n", "a/p2": "n"}


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


def test_a_configuration_that_cannot_be_used_is_told_with_its_line(tmp_path: Path) -> None:
    dump, config = tmp_path / "dump.json", tmp_path / "c.yaml"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    config.write_text("actions: allocate\ntiers:\n- plugins:\n  - name: gangs\n")
    code, lines = run("--objects", str(dump), "--config", str(config))
    assert code == 1
    assert lines[0]["name"] == "dump"
    assert lines[0]["error"].startswith(f"{config}:4: tiers[0].plugins[0].name: 'gangs' is not")


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}))
    code, lines = run("--objects", str(dump), "--now", "2026-01-01T12:00:00")
    assert code == 1
    assert "it has no time zone" in lines[0]["error"]

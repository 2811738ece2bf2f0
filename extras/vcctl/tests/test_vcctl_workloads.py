"""Rules of ``vcctl jobflow`` and ``vcctl jobtemplate``."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from extras.vcctl.tests.conftest import Program
from stromboli.shared.api import flow, kinds
from stromboli.testkit.builders import NOON, make_flow, make_template
from stromboli.vcctl import tables

WORDS: dict[str, kinds.Kind[Any]] = {"jobflow": kinds.JOB_FLOWS, "jobtemplate": kinds.JOB_TEMPLATES}


@pytest.fixture(params=WORDS)
def word(request: Any) -> str:
    return str(request.param)


def document(word: str, name: str = "a", **metadata: str) -> dict[str, Any]:
    kind = WORDS[word]
    pod = {"containers": [{"name": "c", "image": "busybox"}]}
    spec = {"tasks": [{"name": "t", "replicas": 1, "template": {"spec": pod}}]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, **metadata},
        "spec": spec if word == "jobtemplate" else {"flows": [{"name": "a"}]},
    }


def write(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "made.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_create_continues_after_a_failure_and_delete_removes_by_file(
    api_server: Any, program: Program, tmp_path: Path, word: str
) -> None:
    kind = WORDS[word]
    file = write(tmp_path, document(word), document(word), document(word, "b"))
    assert program("vcctl", word, "create", "-f", file) == (
        0,
        f"Created {kind.kind}: default/a\n"
        f"Failed to create {kind.kind}: {kind.kind} a: already exists\n"
        f"Created {kind.kind}: default/b\n",
    )
    assert len(api_server.all(kind)) == 2
    assert program("vcctl", word, "delete", "-f", file) == (
        0,
        f"Deleted {kind.kind}: default/a\n"
        f'Failed to delete {kind.kind}: {kind.plural}.{kind.group} "a" not found\n'
        f"Deleted {kind.kind}: default/b\n",
    )
    assert not api_server.all(kind)


def test_delete_by_name_fails_for_an_absent_object(
    program: Program, tmp_path: Path, word: str
) -> None:
    kind = WORDS[word]
    program("vcctl", word, "create", "-f", write(tmp_path, document(word)))
    assert program("vcctl", word, "delete", "-N", "a") == (0, f"Deleted {kind.kind}: default/a\n")
    assert program("vcctl", word, "delete", "-N", "a") == (
        255,
        f'Failed to {word} delete: {kind.plural}.{kind.group} "a" not found\n',
    )
    assert program("vcctl", word, "delete")[0] == 255


def test_list_and_get_show_the_table(program: Program, tmp_path: Path, word: str) -> None:
    assert program("vcctl", word, "list") == (0, "No resources found\n")
    program("vcctl", word, "create", "-f", write(tmp_path, document(word, "long-name")))
    for shown in (program("vcctl", word, "list"), program("vcctl", word, "get", "-N", "long-name")):
        assert shown[0] == 0
        assert shown[1].splitlines()[1].startswith("long-name    default      ")
    assert program("vcctl", word, "get", "-N", "b")[0] == 255


def test_describe_shows_one_or_all_as_yaml_or_json(
    program: Program, tmp_path: Path, word: str
) -> None:
    file = write(tmp_path, document(word), document(word, "b"))
    program("vcctl", word, "create", "-f", file)
    code, text = program("vcctl", word, "describe")
    assert code == 0
    assert text.count("\n\napiVersion: ") == 1
    one = json.loads(program("vcctl", word, "describe", "-N", "b", "-o", "json")[1])
    assert (one["kind"], one["metadata"]["name"]) == (WORDS[word].kind, "b")
    assert program("vcctl", word, "describe", "-o", "xml") == (
        0,
        "Unsupported output format: xml\n",
    )


def test_a_document_of_another_kind_is_rejected_before_any_creation(
    api_server: Any, program: Program, tmp_path: Path
) -> None:
    file = write(tmp_path, document("jobflow"), document("jobtemplate"))
    code, text = program("vcctl", "jobflow", "create", "-f", file)
    assert (code, text.partition(":")[0]) == (255, "Failed to jobflow create")
    assert not api_server.all(kinds.JOB_FLOWS)


def test_columns_are_four_wider_than_their_longest_cell() -> None:
    found = msgspec.structs.replace(
        make_flow("a", {}), status=flow.JobFlowStatus(state=flow.FlowState(phase="Succeed"))
    )
    assert tables.workloads(kinds.JOB_FLOWS, [found], NOON + timedelta(minutes=5)) == [
        "Name    Namespace    Phase      Age    ",
        "a       default      Succeed    5m     ",
    ]
    assert tables.workloads(kinds.JOB_TEMPLATES, [make_template("tool")], NOON) == [
        "Name    Namespace    ",
        "tool    default      ",
    ]

"""Rules of ``strom get``, ``delete -f`` and ``diff -f``."""

import json
from pathlib import Path
from typing import Any

import pytest

from stromboli.shared.api import kinds
from stromboli.testkit import builders

JOB = """apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: research}
spec: {weight: 1}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  queue: research
  tasks:
  - name: w
    replicas: %d
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}
"""


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(JOB % 2)
    return path


@pytest.mark.parametrize("word", ["job", "jobs", "Job"])
def test_get_shows_one_object_as_the_api_server_has_it(strom: Any, word: str) -> None:
    strom("job", "run", "a")
    shown = json.loads(strom("get", word, "a", "-o", "json").stdout)
    assert (shown["kind"], shown["metadata"]["name"]) == ("Job", "a")


def test_get_of_a_node_shows_the_object_and_not_its_hardware(api_server: Any, strom: Any) -> None:
    api_server.create(kinds.NODES, builders.make_node("n1"))
    assert "kind: Node" in strom("get", "node", "n1", "-o", "yaml").stdout


def test_get_without_a_format_is_the_list_or_the_view_of_the_kind(strom: Any) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
    assert strom("get", "jobs").stdout == strom("job", "list").stdout
    assert "default/a" in strom("get", "job", "a").stdout
    assert strom("get", "jobs", "-o", "name").stdout.count("job.batch.volcano.sh/") == 2
    assert strom("get", "job", "absent").exit_code == 1
    assert strom("get", "card", "a").exit_code == 2


def test_delete_removes_the_objects_of_a_manifest_from_the_last_to_the_first(
    api_server: Any, strom: Any, manifest: Path
) -> None:
    strom("apply", "-f", str(manifest))
    deleted = strom("delete", "-f", str(manifest))
    assert deleted.stdout == (
        "job.batch.volcano.sh/train deleted\nqueue.scheduling.volcano.sh/research deleted\n"
    )
    assert api_server.all(kinds.JOBS) == []
    again = strom("delete", "-f", str(manifest))
    assert (again.exit_code, again.stderr.count("not found")) == (1, 2)
    assert strom("delete", "-f", str(manifest), "--ignore-not-found").exit_code == 0


def test_diff_shows_what_apply_would_change_and_writes_nothing(
    api_server: Any, strom: Any, manifest: Path
) -> None:
    strom("apply", "-f", str(manifest))
    assert (strom("diff", "-f", str(manifest)).stdout, api_server.job("train").spec.queue) == (
        "",
        "research",
    )
    manifest.write_text(JOB % 5)
    changed = strom("diff", "-f", str(manifest))
    assert changed.exit_code == 1
    lines = [line.strip() for line in changed.stdout.splitlines() if line[0] in "+-"]
    assert [line for line in lines if "replicas" in line] == [
        "-    replicas: 2",
        "+    replicas: 5",
    ]
    assert api_server.job("train").spec.tasks[0].replicas == 2


def test_diff_of_a_new_object_shows_all_of_it_and_a_rejection_its_line(
    strom: Any, manifest: Path
) -> None:
    shown = strom("diff", "-f", str(manifest))
    assert shown.exit_code == 1
    assert "+  name: train" in shown.stdout
    manifest.write_text((JOB % 2).replace("queue: research", "queue: nowhere"))
    rejected = strom("diff", "-f", str(manifest))
    assert f"{manifest}:10: Job train: spec.queue" in rejected.stderr


def test_a_kind_that_rest_does_not_read_is_named(strom: Any, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n")
    refused = strom("delete", "-f", str(path))
    assert (refused.exit_code, "use kubectl for other kinds" in refused.stderr) == (1, True)


def test_a_cordoned_node_gets_no_pods_until_it_is_uncordoned(api_server: Any, strom: Any) -> None:
    for name in ("n1", "n2"):
        api_server.create(kinds.NODES, builders.make_node(name))
    done = strom("node", "cordon", "n1", "absent", "n2")
    assert (done.exit_code, done.stdout) == (1, "node/n1 cordoned\nnode/n2 cordoned\n")
    assert strom("node", "list").stdout.count("SchedulingDisabled") == 2
    assert strom("node", "uncordon", "n1", "n2").exit_code == 0
    assert "SchedulingDisabled" not in strom("node", "list").stdout

"""Rules of ``strom job suspend``, ``resume``, ``restart`` and ``scale``."""

import json
from pathlib import Path
from typing import Any

import pytest

from stromboli.shared.api import kinds


@pytest.mark.parametrize(
    ("command", "action", "said"),
    [
        ("suspend", "AbortJob", "suspend requested"),
        ("resume", "ResumeJob", "resume requested"),
        ("restart", "RestartJob", "restart requested"),
    ],
)
def test_an_action_creates_a_command_for_each_job(
    api_server: Any, strom: Any, command: str, action: str, said: str
) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
        api_server.set_status(name, "Aborted" if command == "resume" else "Running")
    requested = strom("job", command, "a", "b")
    assert (requested.exit_code, requested.stderr) == (0, "")
    assert requested.stdout == (f"job.batch.volcano.sh/a {said}\njob.batch.volcano.sh/b {said}\n")
    commands = [kinds.COMMANDS.decode(raw) for raw in api_server.all(kinds.COMMANDS)]
    assert [one.action for one in commands] == [action, action]
    targets = [one.target and (one.target.name, one.target.uid) for one in commands]
    assert targets == [(name, api_server.job(name).metadata.uid) for name in ("a", "b")]


@pytest.mark.parametrize(
    ("command", "phase", "why"),
    [
        ("suspend", "Failed", "it is Failed, so there is nothing to suspend"),
        ("suspend", "Aborted", "it is Aborted, so there is nothing to suspend"),
        ("resume", "Running", "it is Running, and only a suspended job can be resumed"),
        ("resume", "Completed", "it is Completed, and only a suspended job can be resumed"),
        ("restart", "Completed", "it is Completed, so there is nothing to restart"),
    ],
)
def test_an_action_without_effect_is_refused(
    api_server: Any, strom: Any, command: str, phase: str, why: str
) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", phase)
    refused = strom("job", command, "a")
    assert refused.exit_code == 1
    first, next_step = refused.stderr.splitlines()
    assert first == f"strom: job default/a: {why}"
    assert next_step.endswith(" a -n default")
    assert api_server.all(kinds.COMMANDS) == []


def test_a_failure_for_one_job_does_not_stop_the_others(strom: Any) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
    requested = strom("job", "suspend", "a", "absent", "b")
    assert requested.exit_code == 1
    assert [line.split()[0] for line in requested.stdout.splitlines()] == [
        "job.batch.volcano.sh/a", "job.batch.volcano.sh/b",
    ]  # fmt: skip
    assert requested.stderr.startswith("strom: job default/absent: not found\n")


def test_an_action_for_an_absent_job_is_an_error(strom: Any) -> None:
    requested = strom("job", "suspend", "absent")
    assert requested.exit_code == 1
    assert requested.stderr == (
        "strom: job default/absent: not found\nnext: list what exists: strom job list -n default\n"
    )


def test_scale_keeps_a_gang_of_all_pods(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--replicas", "2")
    scaled = strom("job", "scale", "a", "--replicas", "5")
    assert (scaled.exit_code, scaled.stdout) == (0, "job.batch.volcano.sh/a configured\n")
    spec = api_server.job("a").spec
    assert (spec.tasks[0].replicas, spec.min_available) == (5, 5)
    strom("job", "scale", "a", "-r", "4", "--min", "2")
    strom("job", "scale", "a", "-r", "6")
    spec = api_server.job("a").spec
    assert (spec.tasks[0].replicas, spec.min_available) == (6, 2)


def test_scale_shows_the_warnings_of_admission(strom: Any, tmp_path: Path) -> None:
    """As every command that changes an object, on stderr."""
    document = json.loads(strom("job", "run", "a", "--dry-run", "-o", "json").stdout)
    document["spec"]["plugins"] = {"ssh": ["--no-root"]}
    file = tmp_path / "a.json"
    file.write_text(json.dumps(document))
    warning = "Warning: spec.plugins.ssh: --no-root: unknown, so ignored"
    applied = strom("apply", "-f", str(file))
    assert applied.stderr.startswith(warning)
    scaled = strom("job", "scale", "a", "--replicas", "5")
    assert (scaled.exit_code, scaled.stdout) == (0, "job.batch.volcano.sh/a configured\n")
    assert scaled.stderr == applied.stderr


def test_scale_keeps_the_minimum_of_an_elastic_job_by_default(api_server: Any, strom: Any) -> None:
    """Else it would be a rigid one from then on, and wait for all its pods when it grows again."""
    strom("job", "run", "a", "--replicas", "5", "--min", "3")
    refused = strom("job", "scale", "a", "-r", "2")
    assert refused.exit_code == 1
    assert refused.stderr.splitlines()[:2] == [
        "strom: job default/a: rejected with 1 error",
        "  replicas: the job would have 2 pods, but needs 3 (minAvailable); "
        "replicas for at least 3 pods, or a lower minAvailable (--min); to stop all pods, "
        "suspend the job",
    ]
    strom("job", "scale", "a", "-r", "3")
    strom("job", "scale", "a", "-r", "2", "--min", "1")
    strom("job", "scale", "a", "-r", "7")
    spec = api_server.job("a").spec
    assert (spec.tasks[0].replicas, spec.min_available) == (7, 1)


def test_scale_wants_to_know_which_task_of_several(
    api_server: Any, strom: Any, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    template = {"spec": {"containers": [{"name": "c", "image": "busybox"}]}}
    tasks = [
        {"name": "ps", "replicas": 1, "template": template},
        {"name": "worker", "replicas": 4, "minAvailable": 2, "template": template},
    ]
    metadata, kind = {"name": "a"}, {"apiVersion": kinds.JOBS.api_version, "kind": "Job"}
    spec = {"minAvailable": 5, "tasks": tasks}
    file.write_text(json.dumps({**kind, "metadata": metadata, "spec": spec}))
    assert strom("apply", "-f", str(file)).exit_code == 0
    for task, why in (((), "the job has several tasks"), (("-t", "x"), "there is no task 'x'")):
        refused = strom("job", "scale", "a", "-r", "2", *task)
        assert refused.exit_code == 1
        assert refused.stderr.splitlines()[:2] == [
            "strom: job default/a: rejected with 1 error",
            f"  task: {why}; one of ps, worker",
        ]
    fewer = strom("job", "scale", "a", "-r", "1", "-t", "worker")
    assert "task worker would have 1 pod, but needs 2" in fewer.stderr
    assert strom("job", "scale", "a", "-r", "1", "-t", "worker", "-m", "2").exit_code == 0
    scaled = api_server.job("a").spec
    assert (scaled.tasks[1].replicas, scaled.tasks[1].min_available) == (1, 1)
    assert scaled.min_available == 2


def test_scale_reports_rejections_of_admission(strom: Any) -> None:
    strom("job", "run", "a")
    refused = strom("job", "scale", "a", "-r", "1", "--min", "3")
    assert refused.exit_code == 1
    assert "\n  minAvailable: " in refused.stderr

"""Rules of ``strom job``."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from stromboli.cli.render import job_view, pod_status
from stromboli.client import responses
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.testkit import builders

A = "/v1/namespaces/default/jobs/a"


def test_run_creates_the_job_and_names_it_as_kubectl_does(api_server: Any, strom: Any) -> None:
    ran = strom("job", "run", "hello", "--replicas", "3", "--min", "2", "--", "sleep", "5")
    assert (ran.exit_code, ran.stdout) == (0, "job.batch.volcano.sh/hello created\n")
    job = api_server.job("hello")
    assert (job.spec.tasks[0].replicas, job.spec.min_available) == (3, 2)
    assert b'"command":["sleep","5"]' in bytes(job.spec.tasks[0].template.spec)


def test_arguments_after_two_dashes_are_never_the_name(api_server: Any, strom: Any) -> None:
    ran = strom("job", "run", "-N", "hello", "--", "echo", "--image", "x")
    assert ran.exit_code == 0
    assert b'"command":["echo","--image","x"]' in bytes(
        api_server.job("hello").spec.tasks[0].template.spec
    )


def test_a_job_without_a_name_is_given_one(strom: Any) -> None:
    ran = strom("job", "run", "--image", "registry/tool:1")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("job.batch.volcano.sh/tool-")


def test_run_sets_duration_and_exit_code_on_a_simulated_node(api_server: Any, strom: Any) -> None:
    assert strom("job", "run", "a", "--run-seconds", "0.5", "--exit-code", "3").exit_code == 0
    template = api_server.job("a").spec.tasks[0].template.metadata
    assert template.annotation(keys.RUN_SECONDS) == "0.5"
    assert template.annotation(keys.EXIT_CODE) == "3"


def test_run_takes_one_job_of_a_file_and_nothing_beside_it(
    api_server: Any, strom: Any, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    document = {
        "apiVersion": kinds.JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": "filed"},
        "spec": {
            "tasks": [
                {
                    "replicas": 1,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "a", "image": "b"}],
                        }
                    },
                }
            ]
        },
    }
    file.write_text(yaml.safe_dump(document))
    assert strom("job", "run", "-f", str(file), "--image", "x").exit_code == 2
    assert strom("job", "run", "-f", str(file), "--", "sleep").exit_code == 2
    assert strom("job", "run", "-f", str(file)).stdout == "job.batch.volcano.sh/filed created\n"
    assert api_server.job("filed").spec.queue == "default"
    file.write_text(yaml.safe_dump_all([document, document]))
    two = strom("job", "run", "-f", str(file))
    assert two.exit_code == 1
    wanted = f"{kinds.JOBS.api_version} Job"
    assert two.stderr == (
        f"strom: {file}: it must contain exactly one {wanted}, not {wanted}, {wanted}\n"
        f"next: use: strom apply -f {file}\n"
    )
    file.write_text(yaml.safe_dump(document | {"apiVersion": "batch/v1"}))
    other = strom("job", "run", "-f", str(file))
    assert other.stderr.endswith(f"next: write apiVersion: {kinds.JOBS.api_version}\n")


def test_a_rejected_job_is_reported_with_all_violations(strom: Any) -> None:
    refused = strom("job", "run", "a", "--queue", "absent", "--replicas", "2", "--min", "3")
    assert refused.exit_code == 1
    first, *details, last = refused.stderr.splitlines()
    assert first == "strom: job default/a: rejected with 2 errors"
    assert [detail.split(":")[0] for detail in sorted(details)] == [
        "  spec.minAvailable",
        "  spec.queue",
    ]
    assert last == "next: correct the errors and try again; nothing was written"


def test_an_existing_name_is_reported_with_the_next_step(strom: Any) -> None:
    assert strom("job", "run", "a").exit_code == 0
    again = strom("job", "run", "a")
    assert again.exit_code == 1
    assert again.stderr.startswith("strom: job default/a: exists already\nnext: ")
    assert again.stderr.endswith("or delete it: strom job delete a -n default\n")


def test_an_absent_namespace_is_reported(strom: Any) -> None:
    refused = strom("job", "run", "a", "-n", "absent")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: job absent/a: ")
    assert "\nnext: correct --namespace, or create it first" in refused.stderr


def test_wrong_amounts_are_usage_errors_that_name_the_option(strom: Any) -> None:
    for given, message in (
        ("cpu", "'cpu' is not a resource"),
        ("cpu=1,cpu=2", "cpu is given twice"),
        ("cpu=many", "'many' is not a quantity"),
        ("cpu=-1", "-1 is negative"),
    ):
        refused = strom("job", "run", "a", "--requests", given)
        assert refused.exit_code == 2
        assert "--requests" in refused.stderr
        assert message in refused.stderr


def test_list_shows_the_jobs_of_the_namespace_by_name(api_server: Any, strom: Any) -> None:
    for name in ("b", "a"):
        strom("job", "run", name)
    api_server.create_namespace("other")
    strom("job", "run", "elsewhere", "-n", "other")
    api_server.set_status("b", "Running", running=1)
    header, first, second = strom("job", "list").stdout.splitlines()
    assert header.split() == [
        "NAME", "QUEUE", "PHASE", "REPLICAS", "MIN", "PENDING", "RUNNING", "SUCCEEDED", "FAILED",
        "RETRIES", "AGE",
    ]  # fmt: skip
    assert first.split()[:-1] == ["a", "default", "Pending", "1", "1", "0", "0", "0", "0", "0"]
    assert second.split()[:-1] == ["b", "default", "Running", "1", "1", "0", "1", "0", "0", "0"]


def test_a_list_of_all_namespaces_has_a_namespace_column(api_server: Any, strom: Any) -> None:
    api_server.create_namespace("other")
    strom("job", "run", "a")
    strom("job", "run", "b", env={"STROM_NAMESPACE": "other"})
    _, *rows = strom("job", "list", "--all-namespaces").stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["default", "a"], ["other", "b"]]


def test_pods_that_the_time_limit_ended_count_as_failed() -> None:
    """They are deleted, and the status counts them in no state."""
    status = {"state": {"phase": "Failed", "reason": "DeadlineExceeded"}, "succeeded": 1}
    tasks = [{"name": "w", "replicas": 3, "template": {}}]
    document = {"metadata": {"name": "a"}, "spec": {"tasks": tasks}, "status": status}
    job = kinds.JOBS.decode(msgspec.json.encode(document))
    row = job_view.row(job, builders.NOON)
    assert row[job_view.HEADERS.index("FAILED")] == "2"
    assert job_view.progress(job).endswith("Failed (1 succeeded, 2 failed)")
    assert job_view.finished_count(job) == (3, 3)


def test_list_filters_by_phase_and_queue(api_server: Any, strom: Any) -> None:
    strom("queue", "create", "research")
    strom("job", "run", "a")
    strom("job", "run", "b", "--queue", "research")
    api_server.set_status("a", "Completed")

    def names(*filters: str) -> list[str]:
        listed = json.loads(strom("job", "list", "-o", "json", *filters).stdout)
        return [item["metadata"]["name"] for item in listed["items"]]

    assert names() == ["a", "b"]
    assert names("--queue", "research") == ["b"]
    assert names("--phase", "completed,failed") == ["a"]
    assert names("--phase", "Failed") == []
    assert strom("job", "list", "--phase", "Done").exit_code == 2


def test_an_empty_list_is_no_error_and_is_reported_on_stderr(strom: Any) -> None:
    listed = strom("job", "list", "-n", "nowhere")
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert listed.stderr == "No jobs found in namespace nowhere.\n"
    assert strom("job", "list", "-A").stderr == "No jobs found.\n"


def test_a_list_from_which_a_filter_excluded_everything_says_so(strom: Any) -> None:
    """Otherwise users look for their jobs in other namespaces."""
    strom("job", "run", "a", "--image", "tool")
    listed = strom("job", "list", "--queue", "research")
    assert listed.stderr == "No jobs in namespace default match the filter (1 without it).\n"
    assert strom("job", "list", "-A", "--state", "F").stderr == (
        "No jobs match the filter (1 without it).\n"
    )


def test_view_shows_facts_tasks_and_pods(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--replicas", "2", "--image", "tool")
    api_server.set_status("a", "Running", running=1, pending=1)
    for index, node in enumerate(("n1", "")):
        pod = builders.make_pod(
            f"a-default0-{index}",
            node=node,
            task="default0",
            index=index,
            labels={keys.JOB_NAME: "a"},
        )
        api_server.create(kinds.PODS, pod)
    shown = strom("job", "view", "a").stdout
    assert "phase     Running for " in shown
    assert "pods      1 running, 1 pending" in shown
    assert "gang      all 2 pods start together" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["default0", "2", "2", "tool", "cpu=1,memory=100Mi"] in rows
    assert [row[:5] for row in rows if row and row[0].startswith("a-")] == [
        ["a-default0-0", "default0", "Pending", "0", "n1"],
        ["a-default0-1", "default0", "Pending", "0", "-"],
    ]


def test_view_shows_a_container_that_ends_again_and_again() -> None:
    """Its pod is Running all the while."""
    pod = builders.make_pod("a-w-0", node="n1", task="w", phase="Running")
    waits = {"name": "c", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    document = json.loads(msgspec.json.encode(pod))
    document["status"]["containerStatuses"] = [waits]
    found = pod_status.decode(json.dumps(document).encode())
    ((_, _, status, restarts, *_),) = job_view.pod_rows([found], builders.NOON)
    assert (status, restarts) == ("CrashLoopBackOff", "4")


def test_get_distinguishes_jobs_that_request_no_pods() -> None:
    def pods(replicas: int, phase: str) -> str:
        tasks = [builders.make_task(replicas=replicas)]
        status = batch.JobStatus(state=batch.JobState(phase=phase))
        lines = job_view.facts(builders.make_job("a", tasks=tasks, status=status), builders.NOON)
        return next(line for line in lines if line.startswith("pods "))

    assert pods(0, "Running") == (
        "pods      none, as replicas is 0: strom job scale a --replicas N"
    )
    assert pods(1, "Running") == pods(0, "Completed") == "pods      none"


def test_get_reports_a_missing_scheduler_name_with_the_next_step() -> None:
    """Admission fills it in, unless another system acts."""
    now = builders.NOON
    assert "scheduler" not in "\n".join(job_view.facts(builders.make_job(), now))
    (said,) = [
        line
        for line in job_view.facts(builders.make_job(scheduler=""), now)
        if line.startswith("scheduler none is set, so Stromboli does not schedule it")
    ]
    assert said.endswith("delete it and submit it again")


def test_minimums_of_tasks_are_shown_only_if_the_job_enforces_them() -> None:
    """Volcano ignores them in a job that starts with fewer pods than they add up to."""
    task = builders.make_task(replicas=14)
    elastic = builders.make_job(tasks=[task], min_available=1)
    assert [row[2] for row in job_view.task_rows(elastic)] == [""]
    assert "minAvailable 1: the job starts with at least 1 of 14 pods" in "\n".join(
        job_view.facts(elastic, builders.NOON)
    )
    whole = builders.make_job(tasks=[task], min_available=14)
    assert [row[2] for row in job_view.task_rows(whole)] == ["14"]


def test_get_shows_the_progress_of_an_array(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--array", "0-99%10")
    assert "array     0 of 100 indexes succeeded" in strom("job", "view", "a").stdout
    progress = batch.ArrayStatus(succeeded="0-40,42-50", failed="41,51")
    api_server.set_status("a", "Running", array=progress)
    assert (
        "array     50 of 100 indexes succeeded, 2 failed: 41,51" in strom("job", "view", "a").stdout
    )


def test_view_as_json_or_yaml_is_the_object_itself(strom: Any) -> None:
    strom("job", "run", "a")
    found = json.loads(strom("job", "view", "a", "-o", "json").stdout)
    assert (found["kind"], found["metadata"]["name"]) == ("Job", "a")
    assert yaml.safe_load(strom("job", "view", "a", "-o", "yaml").stdout) == found


def test_delete_deletes_each_job_and_reports_absent_ones(strom: Any) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
    deleted = strom("job", "delete", "a", "absent", "b")
    assert deleted.exit_code == 1
    assert deleted.stdout == "job.batch.volcano.sh/a deleted\njob.batch.volcano.sh/b deleted\n"
    assert deleted.stderr == (
        "strom: job default/absent: not found\nnext: list what exists: strom job list -n default\n"
    )


def test_a_name_that_is_empty_never_becomes_a_request(strom: Any) -> None:
    for command in ("view", "delete", "wait"):
        refused = strom("job", command, "")
        assert (refused.exit_code, refused.stderr.splitlines()[0]) == (
            1,
            "strom: name: it is empty",
        )


def test_wait_ends_with_0_only_for_a_job_that_completed(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", "Completed", succeeded=1)
    waited = strom("job", "wait", "a")
    assert (waited.exit_code, waited.stdout) == (0, "default/a: Completed (1 succeeded)\n")
    api_server.set_status("a", "Failed", succeeded=0, failed=1)
    waited = strom("job", "wait", "a")
    assert (waited.exit_code, waited.stdout) == (1, "default/a: Failed (1 failed)\n")


@pytest.mark.parametrize(
    ("wanted", "code"), [("Aborted", 0), ("Failed,Aborted", 0), ("Running", 1)]
)
def test_wait_for_a_phase_ends_with_0_only_in_that_phase(
    api_server: Any, strom: Any, wanted: str, code: int
) -> None:
    """Also if it is an end phase: a user who suspends a job waits for Aborted."""
    strom("job", "run", "a")
    api_server.set_status("a", "Aborted")
    waited = strom("job", "wait", "a", "--for", wanted)
    assert (waited.exit_code, waited.stdout) == (code, "default/a: Aborted\n")


def test_a_job_in_a_back_off_says_when_its_next_attempt_begins() -> None:
    retry_at = builders.NOON + timedelta(seconds=20)
    job = builders.make_job("a", status=batch.JobStatus(retry_count=2, retry_at=retry_at))
    waits = "attempts  2 of 3 failed; the next one begins in 20s"
    assert waits in job_view.facts(job, builders.NOON)
    assert "attempts  2 of 3 failed" in job_view.facts(job, retry_at)


def test_wait_is_over_when_the_phase_comes(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.once_answered(A, lambda: api_server.write_status("a", "Running", running=1))
    waited = strom("job", "wait", "a", "--for", "Running", "--timeout", "30s")
    assert (waited.exit_code, waited.stdout) == (0, "default/a: Running (1 running)\n")
    assert waited.stderr == "default/a: Pending\n"


def test_wait_gives_up_with_124(strom: Any) -> None:
    strom("job", "run", "a")
    waited = strom("job", "wait", "a", "--timeout", "0.2s", "--for", "Completed")
    assert waited.exit_code == 124
    assert waited.stderr.endswith(
        "strom: job default/a: still Pending after 0.2 s\n"
        "next: increase --timeout, or see: strom explain a -n default\n"
    )


def test_wait_for_a_running_job_does_not_refer_to_why_it_is_pending(
    api_server: Any, strom: Any
) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", "Running", running=1)
    waited = strom("job", "wait", "a", "--timeout", "0.2s")
    assert waited.stderr.endswith("next: increase --timeout, or see: strom job get a -n default\n")


def test_get_shows_the_time_limit(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--time", "1-12:00:30")
    assert "limit     1d12h30s of run time\n" in strom("job", "get", "a").stdout
    assert job_view.format_span(0) == "0s"


def test_single_indexes_are_not_suspended(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a", "--array", "0-9")
    refused = strom("job", "suspend", "a[3]")
    assert refused.exit_code == 2
    assert "indexes cannot be suspended" in refused.stderr


def test_wait_for_a_job_that_is_deleted_meanwhile_fails(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.once_answered(A, lambda: api_server.delete_job("a"))
    waited = strom("job", "wait", "a", "--timeout", "30s")
    assert waited.exit_code == 1
    assert "strom: job default/a: it was deleted during the wait" in waited.stderr


def test_wait_refuses_what_is_no_phase_and_no_duration(strom: Any) -> None:
    assert strom("job", "wait", "a", "--for", "Done").exit_code == 2
    assert strom("job", "wait", "a", "--timeout", "soon").exit_code == 2
    assert strom("job", "wait", "absent").exit_code == 1


def test_list_filters_by_labels(api_server: Any, strom: Any) -> None:
    for name in ("a", "b"):
        strom("job", "run", name)
    api_server.label("a", team="vision")
    assert strom("job", "list", "-l", "team=vision", "-o", "name").stdout == (
        "job.batch.volcano.sh/a\n"
    )
    assert strom("job", "list", "-l", "team!=vision", "-o", "name").stdout == (
        "job.batch.volcano.sh/b\n"
    )
    refused = strom("job", "list", "-l", "team>vision")
    assert refused.exit_code == 2
    assert "'team>vision' is not a label selector" in refused.stderr


def test_wide_has_more_columns_and_name_is_the_object_alone(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", "Failed", runningDuration="1m0s")
    header, row = (line.split() for line in strom("job", "list", "-o", "wide").stdout.splitlines())
    assert header[-4:] == ["USER", "PRIORITY", "RAN", "REASON"]
    assert row[-3:] == ["-", "1m0s", "-"]
    assert strom("job", "view", "a", "-o", "name").stdout == "job.batch.volcano.sh/a\n"


@pytest.mark.parametrize(
    ("phase", "reason", "message", "shown"),
    [
        ("Pending", "Accepted", "", ""),
        ("Running", "Started", "", ""),
        ("Completed", "Succeeded", "", ""),
        ("Failed", "Failed", "0 of 1 pods succeeded; a-w-0 failed, Error, exit code 3",
         "0 of 1 pods succeeded; a-w-0 failed, Error, exit code 3"),
        ("Failed", "DeadlineExceeded", "activeDeadlineSeconds 5 has passed",
         "the time limit has passed"),
        ("Aborting", "AbortJob", "command a-abortjob-x2, 0af7", "suspended by a user"),
        ("Aborted", "Stopped", "AbortJob was requested", "suspended by a user"),
        ("Restarting", "RestartJob", "PodFailed of a-w-0, exit code 1",
         "restarted: PodFailed of a-w-0, exit code 1"),
        ("Pending", "Unheard", "", "Unheard"),
    ],
)  # fmt: skip
def test_reasons_are_in_the_words_of_users(
    phase: str, reason: str, message: str, shown: str
) -> None:
    state = batch.JobState(phase=phase, reason=reason, message=message)
    job = builders.make_job(status=batch.JobStatus(state=state))
    assert job_view.wide_cells(job, builders.NOON)[-1] == shown


def test_a_pending_job_shows_why_its_pods_are_not_created() -> None:
    why = "DependencyNotMet: job b has not completed"
    job = builders.make_job(annotations={keys.HELD: why})
    assert job_view.wide_cells(job, builders.NOON)[-1] == why


@pytest.mark.parametrize(
    ("spec", "status", "done"),
    [
        ({}, {}, (0, 5)),
        ({}, {"succeeded": 2, "failed": 1}, (3, 5)),
        ({"array": batch.ArraySpec(indexes="0-99")}, {"succeeded": 4}, (0, 100)),
        (
            {"array": batch.ArraySpec(indexes="0-99")},
            {"array": batch.ArrayStatus(succeeded="0-9", failed="11")},
            (11, 100),
        ),
        ({"array": batch.ArraySpec(indexes="?")}, {}, (0, 0)),
    ],
)
def test_the_progress_bar_of_a_wait_counts_finished_indexes(
    spec: dict[str, Any], status: dict[str, Any], done: tuple[int, int]
) -> None:
    """Indexes of an array, not the few pods that run at the same time."""
    tasks = (batch.TaskSpec(name="a", replicas=5),)
    job = batch.Job(spec=batch.JobSpec(tasks=tasks, **spec), status=batch.JobStatus(**status))
    assert job_view.finished_count(job) == done


def test_a_list_shows_how_long_a_job_has_run_and_a_job_for_whom_it_was_evicted() -> None:
    def ran(phase: str, *, is_seen: bool = True) -> str:
        at = [builders.NOON + timedelta(seconds=seconds) for seconds in (0, 100, 160)]
        job_conditions = [
            batch.JobCondition(status="Running", last_transition_time=at[1])
        ] * is_seen
        state = batch.JobState(phase=phase, last_transition_time=at[2])
        status = batch.JobStatus(
            state=state, conditions=tuple(job_conditions), running_duration="2m40s"
        )
        return job_view.running_time(
            builders.make_job(status=status), at[2] + timedelta(seconds=30)
        )

    assert (ran("Running"), ran("Completed"), ran("Pending")) == ("90s", "60s", "")
    assert ran("Completed", is_seen=False) == "2m40s"
    event = responses.KubernetesEvent(
        involved_object=responses.InvolvedObject(kind="Job", name="a"),
        reason="Reclaimed",
        message="2 pods reclaimed by queue research for job default/x",
        last_timestamp=builders.NOON,
    )
    news = job_view.last_eviction([event], builders.NOON + timedelta(seconds=43))
    assert news == ["evicted   2 pods reclaimed by queue research for job default/x, 43s ago"]
    assert job_view.last_eviction([], builders.NOON) == []

"""Rules of ``strom job logs``."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.cli.render import log_lines, merged_logs, pod_status
from stromboli.client import job_logs
from stromboli.shared.api.views.task_history import TaskAttempt
from stromboli.testkit import builders


@pytest.fixture
def job(api_server: Any, strom: Any) -> None:
    """A job whose two pods have written output."""
    strom("job", "run", "a", "--replicas", "2")
    api_server.start_pod("a", 10, b"ten one\nten two", phase="Succeeded")
    api_server.start_pod("a", 2, b"two one\nbad \xff\n")


@pytest.mark.usefixtures("job")
def test_lines_are_ordered_by_pod_with_its_name(strom: Any) -> None:
    shown = strom("job", "logs", "a")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [
        "w-2  | two one",
        "w-2  | bad \\xff",
        "w-10 | ten one",
        "w-10 | ten two",
    ]


@pytest.fixture
def timed_job(api_server: Any, strom: Any) -> None:
    """A job whose two pods write by turns."""
    strom("job", "run", "a", "--replicas", "2")
    api_server.start_pod("a", 0, b"zero one\nzero two\n", seconds=(1, 30))
    api_server.start_pod("a", 1, b"one one\none two\n", seconds=(2, 40))


@pytest.mark.usefixtures("timed_job")
def test_lines_of_several_pods_are_sorted_by_time(strom: Any) -> None:
    shown = strom("job", "logs", "a")
    assert shown.stdout.splitlines() == [
        "w-0 | zero one",
        "w-1 | one one",
        "w-0 | zero two",
        "w-1 | one two",
    ]


@pytest.mark.usefixtures("timed_job")
@pytest.mark.parametrize("index", [(), ("--index", "1")], ids=["merged", "one"])
def test_lines_since_a_time_are_shown_with_their_times(strom: Any, index: tuple[str, ...]) -> None:
    since = (builders.NOON + timedelta(seconds=35)).isoformat()
    shown = strom("job", "logs", "a", "--since", since, "--timestamps", *index)
    at = (builders.NOON + timedelta(seconds=40)).isoformat()
    assert shown.stdout == f"w-1 | {at} one two\n"


def test_the_logs_of_deleted_pods_of_an_ended_job_are_those_of_the_last_attempts(
    api_server: Any, strom: Any
) -> None:
    strom("job", "run", "a")
    uid = api_server.job("a").metadata.uid
    for attempt in (1, 2):
        api_server.tell_tasks("default/a", uid, "Running", "Failed", attempt=attempt)
        api_server.node.written[f"uid-{attempt}", "main"] = b"attempt %d\n" % attempt
    api_server.set_status("a", "Failed")
    shown = strom("job", "logs", "a", "-c", "main")
    assert (shown.exit_code, shown.stdout) == (0, "p2 | attempt 2\n"), shown.stderr
    assert "The pods are deleted" in shown.stderr


def test_a_line_without_a_time_stays_behind_the_line_before_it() -> None:
    noon, later = builders.NOON.isoformat(), (builders.NOON + timedelta(seconds=9)).isoformat()
    logs = {"a": [f"{later} a1", "no time"], "b": [f"{noon} b1", "2026 is no time"]}
    found = [(source, line.text) for source, line in merged_logs.merge(logs)]
    assert found == [("b", "b1"), ("b", "2026 is no time"), ("a", "a1"), ("a", "no time")]


@pytest.mark.usefixtures("job")
def test_only_selected_logs_are_shown(strom: Any) -> None:
    plain = strom("job", "logs", "a", "--index", "10", "--no-prefix", "--tail", "1")
    assert plain.stdout == "ten two\n"
    assert strom("job", "logs", "a", "--index", "7").stderr == (
        "strom: job default/a: it has no pod with index 7\n"
        "next: wait with --follow, or see: strom job describe a -n default\n"
    )
    assert strom("job", "logs", "absent").exit_code == 1


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize("call", [("logs",), ("logs", "-f")], ids=["read", "follow"])
def test_an_unknown_task_is_reported_immediately(strom: Any, call: tuple[str, ...]) -> None:
    """Followed, it would be waited for until the job has ended."""
    refused = strom("job", *call, "a", "--task", "other")
    assert refused.exit_code == 1
    assert refused.stderr == (
        "strom: job default/a: task 'other' not found; its tasks are default0\n"
        "next: show its tasks: strom job get a -n default\n"
    )


@pytest.mark.usefixtures("job")
def test_an_unreadable_log_is_reported_after_the_others(strom: Any) -> None:
    refused = strom("job", "logs", "a", "--container", "none")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("strom: pod default/a-w-2: no container 'none'; ")
    assert refused.stderr.endswith("next: see: strom job describe a -n default\n")


@pytest.mark.usefixtures("job")
def test_following_shows_each_line_once_and_ends_with_the_job(api_server: Any, strom: Any) -> None:
    """An interrupted stream is resumed after the lines that were shown."""
    api_server.set_status("a", "Completed")
    shown = strom("job", "logs", "a", "--follow")
    assert shown.exit_code == 0
    assert sorted(shown.stdout.splitlines()) == [
        "w-10 | ten one",
        "w-10 | ten two",
        "w-2  | bad \\xff",
        "w-2  | two one",
    ]


def test_following_a_job_that_never_started_a_pod_ends_with_it(api_server: Any, strom: Any) -> None:
    strom("job", "run", "a")
    api_server.set_status("a", "Aborted")
    followed = strom("job", "logs", "a", "-f")
    assert (followed.exit_code, followed.stdout) == (0, "")
    read = strom("job", "logs", "a")
    assert read.exit_code == 1
    assert read.stderr == (
        "strom: job default/a: it is Aborted, and its pods are deleted or have never started\n"
        "next: see: strom job describe a -n default\n"
    )


def test_logs_of_a_pending_job_fail_with_the_reason_why_it_is_pending(
    api_server: Any, strom: Any
) -> None:
    strom("job", "run", "a")
    shown = strom("job", "logs", "a")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert shown.stderr.startswith("strom: job default/a: no pod has started yet\n  default/a is ")


def test_a_container_that_never_started_is_named_with_its_reason() -> None:
    pod = pod_status.decode(
        msgspec.json.encode(
            {
                "metadata": {"name": "a-w-0", "namespace": "default"},
                "spec": {"containers": [{"name": "main"}, {"name": "other"}]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}},
                        {
                            "name": "other",
                            "state": {
                                "terminated": {
                                    "exitCode": 128,
                                    "reason": "StartError",
                                    "message": "exec x: No such file or directory",
                                }
                            },
                        },
                    ],
                },
            }
        )
    )
    assert log_lines.not_started([pod], "a", None) == {
        "w-0/main": "ImagePullBackOff",
        "w-0/other": "StartError: exec x: No such file or directory",
    }
    assert log_lines.not_started([pod], "a", "main") == {"w-0/main": "ImagePullBackOff"}


@given(st.lists(st.binary(max_size=5), max_size=10))
def test_lines_do_not_depend_on_where_chunks_are_cut(chunks: list[bytes]) -> None:
    def lines(parts: list[bytes]) -> list[str]:
        cut = job_logs.LineBuffer()
        return [line for part in parts for line in cut.feed(part)] + list(cut.end())

    assert lines(chunks) == lines([b"".join(chunks)])


@pytest.fixture
def restarted(api_server: Any, strom: Any) -> None:
    """A job whose first attempt was deleted; a process node has kept its log."""
    strom("job", "run", "a")
    uid = api_server.job("a").metadata.uid
    api_server.tell_tasks("default/a", uid, "Pending", "Running", "Gone", attempt=1)
    api_server.tell_tasks("default/a", uid, "Pending", "Running", attempt=2)
    api_server.node.written["uid-1", "default0"] = b"out of memory\n"


@pytest.mark.usefixtures("restarted")
def test_the_log_of_an_earlier_attempt_is_read_where_its_node_has_kept_it(
    api_server: Any, strom: Any
) -> None:
    shown = strom("job", "logs", "a", "--attempt", "1", "--no-prefix", "-c", "default0")
    assert (shown.exit_code, shown.stdout) == (0, "out of memory\n")
    dropped = strom("job", "logs", "a", "--attempt", "2", "-c", "default0")
    assert dropped.exit_code == 1
    assert dropped.stderr.splitlines()[0] == (
        "strom: job default/a: the pod of p2 is deleted, and its kubelet has dropped the log"
    )
    absent = strom("job", "logs", "a", "--attempt", "3")
    assert (absent.exit_code, absent.stderr.splitlines()[0]) == (
        1,
        "strom: job default/a: attempt 3 not found; the last one is 2",
    )
    assert strom("job", "logs", "a", "--attempt", "1", "--follow").exit_code == 2


@pytest.mark.usefixtures("restarted")
def test_the_logs_of_a_deleted_job_are_read_where_its_node_has_kept_them(
    api_server: Any, strom: Any
) -> None:
    """The spec with the names of its containers is gone, so the only one of each pod is read."""
    strom("job", "delete", "a")
    api_server.node.written["uid-2", ""] = b"done\n"
    shown = strom("job", "logs", "a", "--no-prefix")
    assert (shown.exit_code, shown.stdout) == (0, "done\n")
    assert shown.stderr == "The job is deleted: these are the logs that its nodes keep.\n"
    first = strom("job", "logs", "a", "--attempt", "1", "--no-prefix", "-c", "default0")
    assert first.stdout == "out of memory\n"
    assert "not found" in strom("job", "logs", "a", "--attempt", "3").stderr
    assert "not found" in strom("job", "logs", "none").stderr


def test_each_container_of_an_attempt_is_a_source() -> None:
    job = builders.make_job("j", tasks=[builders.make_task("w", 2)])
    attempts = [
        TaskAttempt(
            task="w", index=index, attempt=attempt, pod=f"j-w-{index}", pod_uid="u", state="Gone"
        )
        for index in (1, 0)
        for attempt in (1, 2)
    ]
    sources = log_lines.attempt_sources(job, attempts, 2, None, None, None)
    assert [(each.label, each.is_over) for each in sources] == [("w-0", True), ("w-1", True)]
    assert [each.label for each in log_lines.attempt_sources(job, attempts, 1, "w", [1], "x")] == [
        "w-1"
    ]

"""Array jobs: each index once, a limited number concurrently, ten thousand at the cost of the
window.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    edit,
    enqueued,
    fail,
    go_on,
    reap_all,
    running,
    submitted,
)
from stromboli.controller.core.tasks import arrays
from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.formats import indexes
from stromboli.shared.messages import batch as messages
from stromboli.testkit.builders import make_command, make_job, make_pod, make_task


def array(text: str, at_once: int, retries: int = 0, **more: Any) -> batch.Job:
    spec = batch.ArraySpec(indexes=text, max_retries=retries)
    return make_job(tasks=[make_task("t", at_once)], min_available=0, array=spec, **more)


def end(harness: CoreHarness, *numbers: int, phase: str = "Succeeded") -> None:
    for number in numbers:
        harness.change_pod(f"default/j1-t-{number}", phase, exit_code=int(phase == "Failed"))
    harness.settle()
    reap_all(harness)


def alive(harness: CoreHarness) -> list[int]:
    return sorted(
        int(pod.metadata.annotation(keys.TASK_INDEX) or "")
        for pod in harness.pods()
        if pod.status.phase in ("Pending", "Running")
    )


def test_only_the_window_has_pods_each_with_its_index() -> None:
    harness = enqueued(array("0-9", 3))
    assert alive(harness) == [0, 1, 2]
    body = harness.objects["pods", "default/j1-t-2"]
    env = {it["name"]: it["value"] for it in body["spec"]["containers"][0]["env"]}
    assert env == {"STROM_ATTEMPT": "1", "STROM_ARRAY_INDEX": "2", "STROM_ARRAY_SIZE": "10"}


def test_an_array_is_a_gang_only_with_min_available() -> None:
    assert enqueued(array("0-9", 3)).group().spec.min_member == 1


def test_a_result_is_recorded_its_pod_stays_and_the_next_index_comes() -> None:
    harness = running(array("0,2-100:2", 3))
    end(harness, 2)
    harness.enqueue(harness.group_key())
    harness.settle()
    assert alive(harness) == [0, 4, 6]
    assert "j1-t-2" in harness.pod_names(), "its log may be wanted"
    status = harness.job().status
    assert status.array is not None
    assert (status.array.succeeded, status.succeeded, status.running) == ("2", 1, 2)


def test_an_array_is_completed_when_every_index_has_succeeded_and_keeps_its_progress() -> None:
    harness = running(array("0-4", 2))
    while harness.phase() not in ("Completed", "Failed"):
        end(harness, *alive(harness))
        if harness.phase() == "Running":
            go_on(harness)
    status = harness.job().status
    assert status.array is not None
    assert (status.state.phase, status.succeeded, status.array.succeeded) == ("Completed", 5, "0-4")
    assert status.task_status_count["t"].phase == {"Succeeded": 5}


def test_a_failed_index_is_tried_again_so_often_and_then_counts_as_failed() -> None:
    harness = running(array("0-2", 3, retries=2))
    for tried in (1, 2):
        end(harness, 1, phase="Failed")
        array_ = harness.job().status.array
        assert array_ is not None
        assert (array_.retries, array_.failed) == ({"1": tried}, "")
        go_on(harness)
        assert alive(harness) == [0, 1, 2]
    end(harness, 1, phase="Failed")
    array_ = harness.job().status.array
    assert array_ is not None
    assert (array_.retries, array_.failed) == ({}, "1")
    assert "j1-t-1" in harness.pod_names(), "what failed for good stays to be looked at"
    end(harness, 0, 2)
    assert (harness.phase(), harness.job().status.failed) == ("Failed", 1)


def test_of_many_results_the_last_ones_keep_their_pods() -> None:
    """And the first failed ones; pods without a result are not retained."""
    progress = batch.ArrayStatus(succeeded="0-999", failed="1000-1999")
    status = batch.JobStatus(array=progress)
    job = msgspec.structs.replace(array("0-9999", 50), status=status)
    pods = [
        make_pod(
            f"p{at:04}",
            phase="Succeeded" if at < 1000 else "Failed",
            annotations={keys.TASK_INDEX: str(at)},
        )
        for at in range(2050)
    ]
    kept = sorted(arrays.kept(job, reversed(pods)))
    assert kept == [f"p{at:04}" for at in (*range(800, 1000), *range(1000, 1100))]


def test_an_array_may_be_completed_by_fewer_successes() -> None:
    harness = running(array("0-9", 4, min_success=2))
    end(harness, 0, phase="Failed")
    end(harness, 1, 3)
    assert harness.phase() == "Completed"


def test_a_kill_between_the_record_and_the_removal_counts_nothing_twice() -> None:
    harness = running(array("0-9", 2, retries=1))
    harness.change_pod("default/j1-t-0", "Failed", exit_code=1)
    harness.change_pod("default/j1-t-1", "Succeeded")
    for _ in range(3):
        harness.see()
        item = next(it for it in harness.cache.items() if it.key == J)
        for stage in harness.plan(item)[:1]:
            for command in stage[:1]:
                harness.do(command)
        harness.restart()
    harness.settle()
    status = harness.job().status
    assert status.array is not None
    assert (status.array.succeeded, status.array.retries) == ("1", {"0": 1})


def test_the_window_may_grow_and_shrink_while_the_array_runs() -> None:
    harness = running(array("0-9", 4))
    harness.scale(J, 0, 2)
    harness.settle()
    reap_all(harness)
    assert alive(harness) == [0, 1]
    harness.scale(J, 0, 3)
    harness.settle()
    harness.enqueue(harness.group_key())
    harness.settle()
    assert alive(harness) == [0, 1, 2]


def test_an_index_that_a_policy_restarts_has_no_result_and_all_others_keep_theirs() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod")
    harness = running(array("0-9", 2, policies=[policy]))
    for results in ("", "0"):
        fail(harness, "j1-t-1")
        status = harness.job().status
        assert status.array is not None
        assert (status.array.succeeded, status.array.failed) == (results, "")
        reap_all(harness)
        go_on(harness)
        end(harness, *({0} & set(alive(harness))))
        go_on(harness)
    assert harness.job().status.retry_count == 2


def test_a_restart_of_its_task_restarts_every_index_of_an_array() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartTask")
    harness = running(array("5-8", 2, policies=[policy]))
    before = {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}
    fail(harness, "j1-t-6")
    go_on(harness)
    after = {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


def test_an_index_that_has_failed_for_good_is_not_restarted_by_a_policy_that_waited() -> None:
    """A result is kept; retries of an index are the array's own. All other indexes keep running."""
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod", timeout="30s")
    harness = running(array("0-4", 2, policies=[policy]))
    fail(harness, "j1-t-1")
    go_on(harness)
    before = {pod.metadata.name: pod.metadata.uid for pod in harness.pods()}
    harness.wait(30)
    harness.settle()
    status = harness.job().status
    assert status.array is not None
    assert (status.state.phase, status.retry_count, status.delayed) == ("Running", 0, ())
    assert (status.array.failed, alive(harness)) == ("1", [0, 2])
    assert {pod.metadata.name: pod.metadata.uid for pod in harness.pods()} == before


def test_an_array_is_not_completed_by_the_pods_of_one_window() -> None:
    ends = batch.LifecyclePolicy(event="TaskCompleted", action="CompleteJob")
    harness = running(array("0-3", 2, policies=[ends]))
    end(harness, 0, 1)
    go_on(harness)
    assert (harness.phase(), alive(harness)) == ("Running", [2, 3])


def test_an_array_whose_attempts_are_over_ends_with_the_results_that_it_has() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartJob")
    harness = running(array("0-9", 2, policies=[policy], max_retry=1))
    end(harness, 0)
    go_on(harness)
    end(harness, 1, phase="Failed")
    status = harness.job().status
    assert status.array is not None
    assert (status.state.phase, status.succeeded, status.failed) == ("Failed", 1, 1)
    assert (status.array.succeeded, status.array.failed) == ("0", "1")


def test_a_suspended_array_resumes_and_a_restarted_one_starts_again() -> None:
    harness = running(array("0-9", 2, max_retry=1))
    end(harness, 0)
    for name, action in (("c1", "AbortJob"), ("c2", "ResumeJob")):
        harness.submit(make_command(name, action, harness.job()))
        harness.settle()
        reap_all(harness)
    go_on(harness)
    assert alive(harness) == [1, 2]
    harness.submit(make_command("c3", "RestartJob", harness.job()))
    harness.settle()
    go_on(harness)
    assert alive(harness) == [0, 1]


def test_a_policy_may_restart_one_index() -> None:
    policy = batch.LifecyclePolicy(exit_code=9, action="RestartPod")
    harness = running(array("0-9", 2, policies=[policy]))
    fail(harness, "j1-t-0", exit_code=9)
    go_on(harness)
    assert (alive(harness), harness.job().status.retry_count) == ([0, 1], 1)


@pytest.mark.parametrize("text", ["", "0-20000", "5-1", "x"])
def test_an_invalid_array_is_reported(text: str) -> None:
    harness = submitted(array(text, 2))
    assert (harness.phase(), harness.reasons()) == ("Pending", ["Pending", "Refused"])


def test_ten_thousand_indexes_cost_a_window_of_pods_and_a_small_object() -> None:
    """The largest status: every other index failed, with the last pods running."""
    job = array(f"0-{indexes.MOST - 1}", 50)
    status = batch.JobStatus(
        array=batch.ArrayStatus(
            succeeded=str(indexes.of(range(0, 9_950, 2))),
            failed=str(indexes.of(range(1, 9_950, 2))),
        )
    )
    assert status.array is not None
    assert len(status.array.succeeded) + len(status.array.failed) < 64 * 1024
    window = arrays.window(msgspec.structs.replace(job, status=status))
    assert list(window) == list(range(9_950, 10_000))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12), st.integers(0, 2))
def test_every_index_has_one_result_however_its_attempts_end(
    ends: list[tuple[int, bool]], retries: int
) -> None:
    harness = running(array("0-5", 2, retries=retries))
    for number, is_good in ends:
        if number in alive(harness):
            end(harness, number, phase="Succeeded" if is_good else "Failed")
            if harness.phase() in ("Running", "Pending"):
                go_on(harness)
    found = harness.job().status.array
    assert found is not None
    succeeded, failed = indexes.parse(found.succeeded), indexes.parse(found.failed)
    assert not set(succeeded) & set(failed)
    assert all(tries <= retries for tries in found.retries.values())
    assert len(alive(harness)) <= 2
    assert not set(alive(harness)) & (set(succeeded) | set(failed))


def test_pods_that_are_still_going_take_room_in_the_window() -> None:
    """Licences and disks limit the concurrency, also while an array restarts."""
    harness = running(array("0-9", 3))
    end(harness, 0, 1, 2)
    go_on(harness)
    assert alive(harness) == [3, 4, 5]
    harness.submit(make_command("c1", "RestartJob", harness.job()))
    harness.settle()
    for ended in (0, 1, 2):
        harness.reap(f"default/j1-t-{ended}")
    for going in (5, 4, 3):
        harness.reap(f"default/j1-t-{going}")
        harness.settle()
        harness.enqueue(harness.group_key())
        harness.settle()
        assert len(alive(harness)) == 3
    assert alive(harness) == [0, 1, 2]


def cancel(harness: CoreHarness, text: str) -> None:
    edit(harness, J, array={"cancelled": text})
    harness.settle()
    reap_all(harness)


def test_a_cancelled_index_ends_is_not_started_again_and_is_not_counted() -> None:
    """The next indexes take its room. Its attempt is published with the reason."""
    harness = running(array("0-5", 2, retries=3))
    cancel(harness, "1,3-4")
    go_on(harness)
    assert alive(harness) == [0, 2]
    reasons = {
        it.index: it.reason
        for _, it in harness.sent
        if isinstance(it, messages.TaskChanged) and it.after == "Gone"
    }
    assert reasons == {1: "Cancelled"}
    end(harness, 0, 2)
    go_on(harness)
    assert alive(harness) == [5]
    end(harness, 5)
    status = harness.job().status
    assert (status.state.phase, status.succeeded, status.failed) == ("Completed", 3, 0)


def test_an_index_that_ended_before_it_was_cancelled_keeps_its_result() -> None:
    harness = running(array("0-3", 4))
    end(harness, 0)
    end(harness, 1, phase="Failed")
    cancel(harness, "0-2")
    assert harness.phase() == "Running", "index 3 has no result"
    end(harness, 3)
    status = harness.job().status
    assert status.array is not None
    assert (status.array.succeeded, status.array.failed) == ("0,3", "1")
    assert status.state.phase == "Failed"


def test_an_index_that_ended_while_it_was_cancelled_keeps_its_result() -> None:
    """The user takes the cancellation back: an index that succeeded does not run again."""
    harness = running(array("0-3", 2))
    harness.change_pod("default/j1-t-1", "Succeeded")
    edit(harness, J, array={"cancelled": "1"})
    harness.settle()
    harness.reap("default/j1-t-1")
    harness.settle()
    cancel(harness, "")
    status = harness.job().status
    assert status.array is not None
    assert status.array.succeeded == "1"
    assert 1 not in alive(harness)


def test_an_index_whose_program_exits_with_0_because_it_is_cancelled_has_no_result() -> None:
    harness = running(array("0-3", 2))
    edit(harness, J, array={"cancelled": "1"})
    harness.settle()
    harness.change_pod("default/j1-t-1", "Succeeded")
    harness.settle()
    reap_all(harness)
    harness.settle()
    status = harness.job().status
    assert status.array is None or status.array.succeeded == ""
    cancel(harness, "")
    assert 1 in alive(harness), "it runs again"


def test_an_array_of_which_only_cancelled_indexes_are_left_is_completed() -> None:
    harness = running(array("0-3", 2))
    end(harness, 0)
    cancel(harness, "1-3")
    assert harness.phase() == "Completed"


def test_an_array_of_which_all_indexes_are_cancelled_is_completed() -> None:
    """Admission rejects it, and may have been away."""
    harness = running(array("0-3", 2))
    cancel(harness, "0-3")
    assert (harness.phase(), harness.job().status.succeeded) == ("Completed", 0)


def test_indexes_of_a_waiting_array_are_cancelled_and_the_gang_shrinks() -> None:
    job = make_job(tasks=[make_task("t", 3)], min_available=3, array=batch.ArraySpec(indexes="0-2"))
    harness = enqueued(job)
    cancel(harness, "0-1")
    assert (alive(harness), harness.group().spec.min_member) == ([2], 1)


def test_no_policy_acts_on_the_pod_of_a_cancelled_index() -> None:
    restart = batch.LifecyclePolicy(events=("PodEvicted", "PodFailed"), action="RestartJob")
    harness = running(array("0-3", 2, policies=[restart]))
    cancel(harness, "1")
    go_on(harness)
    assert (harness.job().status.version, alive(harness)) == (0, [0, 2])


def test_programs_see_the_size_of_the_array_without_cancellations() -> None:
    """A program that divides its input by it must get the same part as the others."""
    harness = enqueued(array("0-9", 1))
    cancel(harness, "0")
    harness.settle()
    body = harness.objects["pods", "default/j1-t-1"]
    env = {it["name"]: it["value"] for it in body["spec"]["containers"][0]["env"]}
    assert env["STROM_ARRAY_SIZE"] == "10"


@given(
    ended=st.sets(st.integers(0, 9)),
    cancelled=st.sets(st.integers(0, 9), max_size=9),
    order=st.booleans(),
)
def test_every_index_has_a_result_or_is_cancelled(
    ended: set[int], cancelled: set[int], order: bool
) -> None:
    """Whichever comes first. The job ends when this holds for all, and not before."""
    harness = running(array("0-9", 10))
    text = str(indexes.of(cancelled))
    if order:
        cancel(harness, text)
    end(harness, *(ended & set(alive(harness))))
    if not order:
        cancel(harness, text)
    wanted = set(range(10)) - cancelled - ended
    assert (harness.phase() == "Running") == bool(wanted)
    if wanted:
        end(harness, *wanted)
    assert harness.phase() == "Completed"
    status = harness.job().status
    assert status.array is not None
    succeeded = set(indexes.parse(status.array.succeeded))
    assert succeeded == (set(range(10)) - cancelled) | (set() if order else ended & cancelled)

"""Every move of the table, brought about as it is in life: by pods, by time, by policies and by
people's commands; and what each action does in each phase."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import (
    J,
    edit,
    enqueued,
    evict,
    go_on,
    reap_all,
    restarted,
    running,
    submitted,
)
from stromboli.controller.core import lifecycle
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_command, make_job, make_task

CODES = {101: "RestartTask", 102: "RestartPod", 103: "RestartPartition"}
Scene = Callable[[], CoreHarness]
Step = Callable[[CoreHarness], None]


def job(retries: int = 3) -> batch.Job:
    """Four pods in two partitions; a pod's exit code selects the part of the job that
    it restarts.
    """
    parts = batch.PartitionPolicy(total_partitions=2, partition_size=2)
    return make_job(
        tasks=[make_task("w", 4, partition_policy=parts)],
        policies=[batch.LifecyclePolicy(exit_code=it, action=CODES[it]) for it in CODES],
        max_retry=retries,
        active_deadline_seconds=60,
    )


def runs() -> CoreHarness:
    return running(job())


def fell_short() -> CoreHarness:
    """Pending after it ran: its time limit continues."""
    harness = runs()
    evict(harness, "j1-w-3")
    assert harness.phase() == "Pending"
    return harness


def restarts_a_part(retries: int = 3) -> CoreHarness:
    harness = running(job(retries))
    fails("j1-w-0", 102)(harness)
    assert harness.phase() in ("Restarting", "Failed")
    return harness


def requested(action: str) -> Scene:
    def scene() -> CoreHarness:
        harness = runs()
        asks(action)(harness)
        return harness

    return scene


def aborted() -> CoreHarness:
    harness = requested("AbortJob")()
    reap_all(harness)
    return harness


def finished(action: str) -> Scene:
    def scene() -> CoreHarness:
        harness = requested(action)()
        reap_all(harness)
        return harness

    return scene


def failed() -> CoreHarness:
    harness = runs()
    ends("Failed")(harness)
    return harness


def comes(harness: CoreHarness) -> None:
    harness.submit(job())
    harness.settle()


def asks(action: str) -> Step:
    def step(harness: CoreHarness) -> None:
        number = sum(plural == "commands" for plural, _ in harness.objects) + len(harness.sent)
        harness.submit(make_command(f"c{number}", action, harness.job()))
        harness.settle()

    return step


def fails(pod: str, code: int) -> Step:
    def step(harness: CoreHarness) -> None:
        harness.change_pod(f"default/{pod}", "Failed", exit_code=code)
        harness.settle()

    return step


def ends(phase: str) -> Step:
    def step(harness: CoreHarness) -> None:
        harness.run(phase=phase)
        harness.settle()

    return step


def moves(harness: CoreHarness) -> None:
    edit(harness, J, queue="other")
    harness.settle()


def waits(harness: CoreHarness) -> None:
    harness.wait(60)
    harness.settle()


IN_PHASE: Mapping[str, Scene] = {
    "": CoreHarness,
    "Pending": lambda: enqueued(job()),
    "Running": runs,
    "Restarting": restarts_a_part,
    "Completing": requested("CompleteJob"),
    "Terminating": requested("TerminateJob"),
    "Aborting": requested("AbortJob"),
    "Aborted": aborted,
    "Completed": finished("CompleteJob"),
    "Terminated": finished("TerminateJob"),
    "Failed": failed,
}
FROM: Mapping[tuple[str, str], Scene] = {
    ("Pending", "DeadlineExceeded"): fell_short,
    ("Restarting", "Exhausted"): lambda: running(job(1)),
}
"""Where a move needs more than the phase."""
BY: Mapping[str, Step] = {
    "Accepted": comes,
    "Started": ends("Running"),
    "FellShort": lambda harness: evict(harness, "j1-w-3"),
    "Succeeded": ends("Succeeded"),
    "Failed": ends("Failed"),
    "Cleared": reap_all,
    "Exhausted": fails("j1-w-0", 102),
    "Stopped": reap_all,
    "DeadlineExceeded": waits,
    "QueueChanged": moves,
    "RestartTask": fails("j1-w-1", 101),
    "RestartPod": fails("j1-w-1", 102),
    "RestartPartition": fails("j1-w-1", 103),
}


@pytest.mark.parametrize(("phase", "event"), lifecycle.TABLE, ids=lambda it: it or "new")
def test_every_transition_of_the_table_is_made_and_counted_as_declared(
    phase: lifecycle.Phase, event: lifecycle.Event
) -> None:
    harness = FROM.get((phase, event), IN_PHASE[phase])()
    uid = harness.job().metadata.uid if phase else ""
    past = len(harness.phases.get(uid, ()))
    BY.get(event, asks(event))(harness)
    statuses = harness.phases[harness.job().metadata.uid]
    at = next(at for at in range(past, len(statuses)) if statuses[at].state.reason == event)
    before, after = statuses[at - 1] if at else batch.JobStatus(), statuses[at]
    move = lifecycle.TABLE[phase, event]
    assert (before.state.phase, after.state.phase) == (phase, move.to)
    assert after.retry_count - before.retry_count == move.retry
    assert after.version - before.version == move.new_version
    is_asked = event not in CODES.values()
    assert after.asked_retries - before.asked_retries == (move.retry and is_asked)
    assert after.array is None, "what is no array has no progress"


WHOLE = ("RestartJob", "AbortJob", "CompleteJob", "TerminateJob", "ResumeJob")
STOPS = {"AbortJob": "Aborting", "CompleteJob": "Completing", "TerminateJob": "Terminating"}
TAKEN: Mapping[str, Mapping[str, str]] = {
    "Pending": STOPS | {"RestartJob": "Restarting"},
    "Running": STOPS | {"RestartJob": "Restarting"},
    "Restarting": STOPS | {"RestartJob": "Restarting"},
    "Aborting": {"ResumeJob": "Restarting"},
    "Aborted": {"ResumeJob": "Restarting"},
    "Completing": {},
    "Terminating": {},
    "Completed": {},
    "Terminated": {},
    "Failed": {},
}
"""Phase -> the user commands that it allows, and their phases. All others are rejected."""


@pytest.mark.parametrize("phase", TAKEN)
@pytest.mark.parametrize("action", WHOLE)
def test_what_people_ask_for_is_done_or_refused_in_every_phase(phase: str, action: str) -> None:
    harness = IN_PHASE[phase]()
    past = len(harness.phases[harness.job().metadata.uid])
    asks(action)(harness)
    reached = [it.state.phase for it in harness.phases[harness.job().metadata.uid][past:]]
    if action in TAKEN[phase]:
        assert reached[0] == TAKEN[phase][action]
    else:
        assert set(reached) <= {phase}
        assert "CommandRefused" in harness.reasons()
    assert not [key for plural, key in harness.objects if plural == "commands"]


@pytest.mark.parametrize(
    ("action", "pods_that_go"),
    [
        ("RestartJob", {0, 1, 2, 3}),
        ("AbortJob", {2, 3}),
        ("CompleteJob", {2, 3}),
        ("TerminateJob", {2, 3}),
    ],
)
def test_a_restart_ends_all_pods_and_a_stop_those_that_have_not_ended(
    action: str, pods_that_go: set[int]
) -> None:
    harness = runs()
    harness.change_pod("default/j1-w-0", "Succeeded")
    harness.change_pod("default/j1-w-1", "Failed", exit_code=1)
    asks(action)(harness)
    going = [it.metadata.name for it in harness.pods() if it.metadata.deletion_timestamp]
    assert going == [f"j1-w-{index}" for index in sorted(pods_that_go)]
    assert ("podgroups", harness.group_key()) not in harness.objects, "it will queue anew"


def test_a_whole_restart_takes_over_from_that_of_a_part_for_the_same_try() -> None:
    """And is not lost: the eviction of a pod would not be reported again."""
    policies = [
        batch.LifecyclePolicy(event="PodFailed", action="RestartPod"),
        batch.LifecyclePolicy(event="PodEvicted", action="RestartJob"),
    ]
    harness = running(make_job(tasks=[make_task("w", 3)], policies=policies))
    fails("j1-w-0", 1)(harness)
    evict(harness, "j1-w-1")
    assert {
        it.metadata.name for it in harness.pods() if not it.metadata.deletion_timestamp
    } == set()
    reap_all(harness)
    status = harness.job().status
    assert (status.state.phase, status.version, status.retry_count) == ("Pending", 1, 1)
    assert status.state.message == "RestartJob: PodEvicted of j1-w-1"


def test_a_pod_group_that_an_earlier_attempt_left_unknown_restarts_nothing_more() -> None:
    policy = batch.LifecyclePolicy(event="Unknown", action="RestartJob")
    harness = running(make_job(tasks=[make_task("w", 2)], policies=[policy]))
    body = harness.objects["podgroups", harness.group_key()]
    harness.put(kinds.POD_GROUPS, {**body, "status": {"phase": "Unknown"}})
    harness.settle()
    reap_all(harness)
    status = harness.job(J).status
    assert (status.state.phase, status.version, status.retry_count) == ("Pending", 1, 1)
    assert status.state.message == "RestartJob: Unknown"


def test_a_job_continues_once_the_gang_has_room_beside_the_pods_that_still_go() -> None:
    harness = running(make_job(tasks=[make_task("w", 3)], min_available=1))
    asks("RestartJob")(harness)
    assert harness.phase() == "Restarting"
    harness.reap("default/j1-w-0")
    harness.settle()
    assert (harness.phase(), len(harness.pods())) == ("Pending", 2)
    assert harness.group().status.phase == "Pending", "pods that go do not let the next try in"


@pytest.mark.parametrize("init", [False, True], ids=["containers", "init containers"])
def test_restarts_of_a_tasks_containers_add_up_to_its_failure(init: bool) -> None:
    policy = batch.LifecyclePolicy(event="TaskFailed", action="TerminateJob")
    harness = running(make_job(tasks=[make_task("w", 2, max_retry=4, policies=[policy])]))
    field = "initContainerStatuses" if init else "containerStatuses"
    for name, count, phase in (("j1-w-0", 1, "Running"), ("j1-w-1", 3, "Terminating")):
        status: dict[str, Any] = {field: [{"name": "c", "restartCount": count, "ready": True}]}
        harness.change_pod(f"default/{name}", **status)
        harness.settle()
        assert harness.phase() == phase
    assert harness.job().status.state.message == "TaskFailed of task w"


@pytest.mark.parametrize(
    ("limit", "restarts", "phase"), [(0, 2, "Running"), (0, 3, "Terminating"), (-1, 99, "Running")]
)
def test_a_task_without_a_limit_fails_at_three_and_one_below_zero_never(
    limit: int, restarts: int, phase: str
) -> None:
    policy = batch.LifecyclePolicy(event="TaskFailed", action="TerminateJob")
    harness = running(make_job(tasks=[make_task("w", 1, max_retry=limit, policies=[policy])]))
    status = {"name": "c", "restartCount": restarts, "ready": True}
    harness.change_pod("default/j1-w-0", containerStatuses=[status])
    harness.settle()
    assert harness.phase() == phase


def test_user_commands_cost_no_retry() -> None:
    """It counts in retryCount, as with Volcano; the budget is for what went wrong."""
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartJob")
    harness = running(make_job(tasks=[make_task(replicas=1)], max_retry=2, policies=[policy]))
    for action in ("RestartJob", "AbortJob", "ResumeJob") * 3:
        asks(action)(harness)
        reap_all(harness)
    go_on(harness)
    status = harness.job().status
    assert (status.state.phase, status.retry_count, status.asked_retries) == ("Running", 6, 6)
    for phase in ("Running", "Failed"):
        fails("j1-worker-0", 1)(harness)
        reap_all(harness)
        if harness.phase() != "Failed":
            go_on(harness)
        assert harness.phase() == phase
    status = harness.job().status
    assert (status.retry_count, status.asked_retries) == (8, 6)
    assert status.state.message == (
        "maxRetry 2 is reached; restarted: PodFailed of j1-worker-0, exit code 1"
    )


def test_a_job_that_was_aborted_when_its_attempts_were_over_fails_when_it_is_resumed() -> None:
    harness = restarted(retries=1)
    for action in ("AbortJob", "ResumeJob"):
        asks(action)(harness)
        reap_all(harness)
    assert harness.phase() == "Failed"
    assert "maxRetry 1 is reached" in harness.job().status.state.message


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        ("RestartJob", "Restarting"),
        ("AbortJob", "Aborting"),
        ("TerminateJob", "Terminating"),
        ("CompleteJob", "Completing"),
    ],
)
def test_the_status_of_a_transition_counts_pods_that_it_ends_as_terminating(
    action: str, phase: str
) -> None:
    """Other tools wait for ``Restarting`` with one terminating pod; it may be deleted at their next
    read.
    """
    here = CoreHarness()
    here.submit(make_job(tasks=[make_task(replicas=2)]))
    here.settle()
    here.enqueue(here.group_key())
    here.settle()
    here.run()
    here.settle()
    here.submit(make_command("c1", action, here.job()))
    here.settle()
    uid = here.job().metadata.uid
    first = next(it for it in here.phases[uid] if it.state.phase == phase)
    assert (first.terminating, first.running, first.pending) == (2, 0, 0)
    assert first.task_status_count == {}


def test_a_restart_of_a_part_counts_only_that_part_as_terminating() -> None:
    here = CoreHarness()
    policy = batch.LifecyclePolicy(event="PodFailed", action="RestartPod")
    here.submit(make_job(tasks=[make_task(replicas=3)], policies=[policy]))
    here.settle()
    here.enqueue(here.group_key())
    here.settle()
    here.run()
    here.settle()
    here.run("j1-worker-1", phase="Failed")
    here.settle()
    uid = here.job().metadata.uid
    first = next(it for it in here.phases[uid] if it.state.phase == "Restarting")
    assert (first.terminating, first.running, first.failed) == (1, 2, 0)


@pytest.mark.parametrize("is_enqueued", [False, True])
def test_a_waiting_job_whose_queue_changes_gets_a_new_pod_group_there(is_enqueued: bool) -> None:
    """Decisions about the old PodGroup and its pods then find neither, and its quota is free. The
    change costs no retry."""
    harness = (enqueued if is_enqueued else submitted)(job())
    before = harness.group()
    moves(harness)
    reap_all(harness)
    group = harness.group()
    assert (group.spec.queue, group.status.phase) == ("other", "Pending")
    assert group.metadata.uid != before.metadata.uid
    assert harness.pods() == []
    harness.enqueue(harness.group_key())
    harness.settle()
    labels = [pod.metadata.labels or {} for pod in harness.pods()]
    assert {it[keys.QUEUE_NAME] for it in labels} == {"other"}
    status = harness.job().status
    assert (status.state.phase, status.version) == ("Pending", 1)
    assert status.retry_count == status.asked_retries
    moved = harness.phases[harness.job().metadata.uid]
    assert "the queue changed from default to other" in [it.state.message for it in moved]


def test_a_suspended_job_whose_queue_changes_is_resumed_in_it() -> None:
    harness = aborted()
    moves(harness)
    assert harness.phase() == "Aborted"
    asks("ResumeJob")(harness)
    assert harness.group().spec.queue == "other"


def test_a_job_that_started_while_its_queue_changed_runs_on() -> None:
    """Its pods hold the quota of the queue that admitted them; the next start is in the other."""
    harness = runs()
    moves(harness)
    assert (harness.phase(), harness.group().spec.queue) == ("Running", "default")
    asks("RestartJob")(harness)
    reap_all(harness)
    assert harness.group().spec.queue == "other"


@pytest.mark.parametrize("is_of_volcano", [False, True])
def test_a_pod_group_keeps_its_queue_unless_the_job_changes_it(is_of_volcano: bool) -> None:
    """An empty queue is the default one, and Volcano sets the queue of the namespace in the
    PodGroup only."""
    harness = submitted(job())
    body = copy.deepcopy(harness.body("podgroups"))
    body["spec"]["queue"] = "team" if is_of_volcano else ""
    if is_of_volcano:
        del body["metadata"]["annotations"][keys.JOB_VERSION]
    harness.put(kinds.POD_GROUPS, body)
    harness.settle()
    assert harness.phases_seen() == ["Pending"]

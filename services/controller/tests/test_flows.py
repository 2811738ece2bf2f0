"""JobFlows and JobTemplates: when each job starts, and its status."""

import copy
from datetime import timedelta

import msgspec
import pytest

from services.controller.tests.support.core_harness import CoreHarness
from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.workloads import flows, template_patch
from stromboli.shared import keys, topics
from stromboli.shared.api import flow, kinds
from stromboli.shared.api.flow import Flow, FlowDependsOn, FlowPatch, Probe
from stromboli.testkit.builders import (
    NOON,
    make_flow,
    make_job,
    make_task,
    make_template,
    undecodable_record,
)

F = "default/f"


def world_with(*templates: str, ttl: int | None = None) -> CoreHarness:
    """A cluster with templates of jobs that need one pod."""
    harness = CoreHarness()
    for name in templates:
        harness.submit(make_template(name, make_job(ttl_seconds_after_finished=ttl)))
    return harness


def started(entries: dict[str, list[str]], retain: str = "", ttl: int | None = None) -> CoreHarness:
    """Flow ``f``, and the jobs that it starts immediately."""
    harness = world_with(*entries, ttl=ttl)
    harness.submit(make_flow("f", entries, retain=retain))
    harness.settle()
    return harness


def run(harness: CoreHarness, name: str) -> None:
    """A job's pod runs."""
    harness.enqueue(harness.group_key(f"default/{name}"))
    harness.settle()
    harness.run(f"{name}-worker-0")
    harness.settle()


def end(harness: CoreHarness, name: str, phase: str = "Succeeded") -> None:
    """A job ends."""
    run(harness, name)
    harness.change_pod(f"default/{name}-worker-0", phase)
    harness.settle()


def found(harness: CoreHarness) -> flow.JobFlow:
    return harness.get(kinds.JOB_FLOWS, F)


def phase(harness: CoreHarness) -> str:
    return found(harness).status.state.phase


# Order


def test_a_job_starts_when_all_its_targets_are_completed() -> None:
    harness = started({"a": [], "b": [], "c": ["a", "b"], "d": ["c"]})
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]
    end(harness, "f-a")
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]
    end(harness, "f-b")
    assert harness.names(kinds.JOBS) == ["f-a", "f-b", "f-c"]
    end(harness, "f-c")
    end(harness, "f-d")
    assert phase(harness) == "Succeed"


def test_a_job_is_its_template_with_marks_and_its_flow_as_owner() -> None:
    harness = started({"a": []})
    body = harness.objects["jobs", "default/f-a"]
    marks = {keys.CREATED_BY_TEMPLATE: "default.a", keys.CREATED_BY_FLOW: "default.f"}
    assert body["metadata"]["labels"] == marks
    assert body["metadata"]["annotations"] == marks
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("JobFlow", "f", True)
    template = harness.objects["jobtemplates", "default/a"]
    assert body["spec"] == template["spec"]


def test_a_job_without_a_scheduler_gets_ours() -> None:
    harness = CoreHarness()
    harness.submit(make_template("a", make_job(scheduler="")))
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    assert harness.job("default/f-a").spec.scheduler_name == "volcano"


def test_a_flow_with_a_template_of_another_scheduler_belongs_to_another_system() -> None:
    harness = CoreHarness()
    harness.submit(make_template("a", make_job(scheduler="kueue")))
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    assert not harness.names(kinds.JOBS)
    assert found(harness).status == flow.JobFlowStatus()
    assert not harness.events


def test_a_flow_reports_that_it_waits_for_a_template() -> None:
    harness = started({"a": []})
    harness.submit(make_flow("g", {"late": []}))
    harness.settle()
    assert any(
        "JobTemplate default/late does not exist" in it.message for it in harness.events.values()
    )
    harness.submit(make_template("late"))
    harness.settle()
    assert "g-late" in harness.names(kinds.JOBS)


@pytest.mark.parametrize(
    ("entries", "word"),
    [({"a": ["b"], "b": ["a"]}, "wait for each other"), ({"a": ["nowhere"]}, "'nowhere'")],
)
def test_an_order_that_cannot_be_is_reported_and_starts_nothing(
    entries: dict[str, list[str]], word: str
) -> None:
    """It may have been created while the webhook was down."""
    harness = started(entries)
    assert not harness.names(kinds.JOBS)
    (event,) = harness.events.values()
    assert event.reason == "SyncJobFlow"
    assert word in event.message


def test_the_last_of_two_equal_names_counts() -> None:
    harness = world_with("a", "b")
    entries = [Flow(name="b"), Flow(name="a"), Flow(name="b", depends_on=after("a"))]
    harness.submit(make_flow("f", entries))
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a"]


def after(*targets: str, probe: Probe | None = None) -> FlowDependsOn:
    return FlowDependsOn(targets=targets, probe=probe)


def test_a_job_of_another_owner_with_the_name_is_kept_and_reported() -> None:
    harness = world_with("a")
    harness.submit(make_job("f-a"))
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    assert harness.job("default/f-a").metadata.controller is None
    assert any("another owner" in event.message for event in harness.events.values())


def test_an_unreadable_job_is_not_replaced() -> None:
    harness = started({"a": []})
    harness.restart()
    harness.dirty |= dict.fromkeys(
        harness.cache.apply(undecodable_record(topics.JOBS, "default/f-a")).items
    )
    before = len(harness.done)
    harness.settle()
    assert not any(isinstance(it, commands.Create) for it in harness.done[before:])


# The flow's phase and status


@pytest.mark.parametrize(
    ("before", "jobs", "wanted"),
    [
        ("", [], "Pending"),
        ("", [None, None], "Pending"),
        ("Pending", ["Pending", None], "Pending"),
        ("Pending", ["Running", None], "Running"),
        ("Pending", ["Completed", None], "Running"),
        ("Running", ["Restarting", None], "Running"),
        ("Running", ["Completed", "Completed"], "Succeed"),
        ("Running", ["Completed", "Aborted"], "Running"),
        ("Pending", ["Completed"], "Succeed"),
        ("Running", ["Failed", "Completed"], "Failed"),
        ("Running", ["Terminated", "Running"], "Failed"),
        ("Failed", ["Completed"], "Failed"),
        ("Succeed", ["Failed"], "Succeed"),
    ],
)
def test_the_phase_of_a_flow_follows_from_its_jobs(
    before: str, jobs: list[str | None], wanted: str
) -> None:
    assert flows.next_phase(before, jobs) == wanted


def test_the_status_lists_jobs_by_phase_and_reports_each_story() -> None:
    harness = started({"a": [], "b": [], "c": ["a"]})
    begun = harness.now
    harness.wait(10)
    end(harness, "f-a")
    run(harness, "f-b")
    status = found(harness).status
    assert status.state.phase == "Running"
    assert status.completed_jobs == ("f-a",)
    assert status.running_jobs == ("f-b",)
    assert status.pending_jobs == ("f-c",)
    story = status.job_status_list[0]
    assert (story.name, story.state) == ("f-a", "Completed")
    assert (story.start_timestamp, story.end_timestamp) == (begun, harness.now)
    assert [it.state for it in story.running_histories] == ["Pending", "Running", "Completed"]
    assert all(it.end_timestamp for it in story.running_histories[:-1])
    assert status.conditions["f-a"].task_status_count["worker"].phase == {"Succeeded": 1}


def test_a_story_keeps_the_newest_phases() -> None:
    """A job may be preempted any number of times."""
    histories: tuple[flow.RunningHistory, ...] = ()
    at = NOON
    for number in range(2 * flows.MOST_PHASES):
        at = NOON + timedelta(seconds=number)
        histories = flows.with_phase(histories, ("Restarting", "Running")[number % 2], at)
    assert len(histories) == flows.MOST_PHASES
    assert (histories[-1].start_timestamp, histories[-1].end_timestamp) == (at, None)


def test_a_failed_job_fails_its_flow_for_good_and_starts_nothing_more() -> None:
    harness = started({"a": [], "b": [], "c": ["b"]})
    end(harness, "f-a", "Failed")
    assert phase(harness) == "Failed"
    end(harness, "f-b")
    assert "f-c" not in harness.names(kinds.JOBS)
    assert phase(harness) == "Failed"
    assert found(harness).status.completed_jobs == ("f-b",)


def test_a_job_in_any_other_phase_is_unknown() -> None:
    harness = started({"a": []})
    run(harness, "f-a")
    harness.delete(kinds.PODS, "default/f-a-worker-0")
    harness.put(kinds.JOBS, with_phase(harness, "f-a", "Restarting"))
    harness.settle()
    assert found(harness).status.un_know_jobs == ("f-a",)


def with_phase(harness: CoreHarness, name: str, phase: str) -> dict[str, object]:
    body = harness.objects["jobs", f"default/{name}"]
    return body | {"status": body["status"] | {"state": {"phase": phase}}}


def test_retained_jobs_stay_and_others_go_once_the_flow_has_succeeded() -> None:
    kept, cleared = started({"a": []}), started({"a": [], "b": ["a"]}, retain="delete")
    end(kept, "f-a")
    assert kept.names(kinds.JOBS) == ["f-a"]
    end(cleared, "f-a")
    assert cleared.names(kinds.JOBS) == ["f-a", "f-b"]
    end(cleared, "f-b")
    assert not cleared.names(kinds.JOBS)
    assert phase(cleared) == "Succeed"
    assert found(cleared).status.completed_jobs == ("f-a", "f-b")


def test_a_template_names_the_jobs_that_were_created_from_it() -> None:
    harness = started({"a": [], "b": []})
    harness.submit(make_flow("g", {"a": []}))
    harness.settle()
    assert harness.get(kinds.JOB_TEMPLATES, "default/a").status.job_depends_on_list == (
        "f-a",
        "g-a",
    )
    harness.delete(kinds.JOB_FLOWS, F)
    harness.settle()
    assert harness.get(kinds.JOB_TEMPLATES, "default/a").status.job_depends_on_list == ("g-a",)
    assert harness.get(kinds.JOB_TEMPLATES, "default/b").status.job_depends_on_list == ()


# Deleted jobs


def test_a_job_that_its_flow_knows_to_be_over_is_not_created_again() -> None:
    harness = started({"a": [], "b": ["a"]})
    end(harness, "f-a")
    harness.delete(kinds.JOBS, "default/f-a")
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-b"]
    assert found(harness).status.completed_jobs == ("f-a",)


def test_a_job_deleted_before_its_end_is_created_again() -> None:
    harness = started({"a": []})
    run(harness, "f-a")
    harness.delete(kinds.JOBS, "default/f-a")
    harness.settle()
    assert len(harness.made["default/f-a"]) == 2


def test_a_job_that_lives_no_time_stays_until_its_flow_knows_its_end() -> None:
    """Else the flow would find nothing and make it again."""
    harness = started({"a": [], "b": ["a"]}, ttl=0)
    run(harness, "f-a")
    harness.change_pod("default/f-a-worker-0", "Succeeded")
    harness.see()
    for _ in range(5):
        harness.step(controller_cache.ReconcileKey("job", "default/f-a"))
        harness.see()
    assert harness.phase("default/f-a") == "Completed"
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-b"]
    assert len(harness.made["default/f-a"]) == 1


def test_a_controller_that_sees_an_old_flow_creates_nothing_from_it() -> None:
    harness = started({"a": [], "b": ["a"]}, ttl=0)
    old = harness.shown(topics.JOB_FLOWS.name)
    end(harness, "f-a")
    harness.restart(old=old)
    while harness.dirty:
        harness.step(next(iter(harness.dirty)))
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-b"]
    assert len(harness.made["default/f-a"]) == 1


def test_a_flow_that_is_deleted_takes_its_jobs_with_it() -> None:
    harness = started({"a": []}, ttl=0)
    harness.delete(kinds.JOB_FLOWS, F)
    harness.settle()
    assert not harness.names(kinds.JOBS)


# Probes


TCP = Probe(tcp_socket_list=(flow.TcpSocket(port=80, task_name="worker"),))


def probed(probe: Probe) -> CoreHarness:
    """``b`` depends on ``a`` with a probe; two pods of ``a`` run."""
    harness = CoreHarness()
    harness.submit(make_template("a", make_job(tasks=[make_task(replicas=2)])))
    harness.submit(make_template("b"))
    harness.submit(
        make_flow("f", [Flow(name="a"), Flow(name="b", depends_on=after("a", probe=probe))])
    )
    harness.settle()
    harness.enqueue(harness.group_key("default/f-a"))
    harness.settle()
    for number in (0, 1):
        name = f"default/f-a-worker-{number}"
        harness.change_pod(name, "Running", "n1", podIP=f"10.0.0.{number}")
    harness.settle()
    return harness


def requested(harness: CoreHarness) -> list[str]:
    return [it.host for it in harness.done if isinstance(it, commands.RunProbe)]


def test_a_job_starts_when_the_pods_of_its_target_take_connections() -> None:
    harness = probed(TCP)
    assert requested(harness) == ["10.0.0.0", "10.0.0.1"]
    assert harness.names(kinds.JOBS) == ["f-a"]
    harness.answering = {("10.0.0.0", commands.ProbeRequest(port=80))}
    harness.wait(1)
    harness.settle()
    assert len(requested(harness)) == 2
    harness.wait(1)
    harness.settle()
    assert len(requested(harness)) == 4
    assert harness.names(kinds.JOBS) == ["f-a"]
    harness.answering.add(("10.0.0.1", commands.ProbeRequest(port=80)))
    harness.wait(2)
    harness.settle()
    assert requested(harness)[4:] == ["10.0.0.1"]
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]
    assert harness.due(controller_cache.ReconcileKey("flow", F)) is None


def test_a_job_starts_when_an_http_probe_with_its_header_succeeds() -> None:
    get = flow.HttpGet(
        task_name="worker",
        path="/ready",
        port=8080,
        http_header=flow.HttpHeader(name="X-Flow", value="yes"),
    )
    harness = probed(Probe(http_get_list=(get,)))
    question = commands.ProbeRequest(port=8080, path="/ready", header=("X-Flow", "yes"))
    assert {it.question for it in harness.done if isinstance(it, commands.RunProbe)} == {question}
    harness.answering = {(f"10.0.0.{number}", question) for number in (0, 1)}
    harness.wait(2)
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_job_starts_when_enough_pods_of_a_task_are_in_a_phase() -> None:
    harness = probed(
        Probe(task_status_list=(flow.TaskStatusProbe(task_name="worker", phase="Succeeded"),))
    )
    harness.change_pod("default/f-a-worker-0", "Succeeded")
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a"]


def test_a_running_phase_lets_the_next_job_start_while_its_target_runs() -> None:
    harness = probed(
        Probe(task_status_list=(flow.TaskStatusProbe(task_name="worker", phase="Running"),))
    )
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]
    assert not requested(harness)


def test_a_task_that_its_job_can_do_without_has_to_show_something() -> None:
    harness = CoreHarness()
    spare = make_task("spare", 2, min_available=0)
    harness.submit(make_template("a", make_job(tasks=[make_task(), spare], min_available=1)))
    harness.submit(make_template("b"))
    probe = Probe(task_status_list=(flow.TaskStatusProbe(task_name="spare", phase="Running"),))
    harness.submit(
        make_flow("f", [Flow(name="a"), Flow(name="b", depends_on=after("a", probe=probe))])
    )
    harness.settle()
    harness.enqueue(harness.group_key("default/f-a"))
    harness.settle()
    harness.run("f-a-worker-0")
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a"]
    harness.run("f-a-spare-0")
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_target_that_no_test_looks_at_has_to_complete() -> None:
    harness = probed(Probe(tcp_socket_list=(flow.TcpSocket(port=80, task_name="driver"),)))
    assert harness.names(kinds.JOBS) == ["f-a"]
    for number in (0, 1):
        harness.change_pod(f"default/f-a-worker-{number}", "Succeeded")
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_restarted_controller_calls_again() -> None:
    harness = probed(TCP)
    harness.answering = {("10.0.0.0", commands.ProbeRequest(port=80))}
    harness.restart()
    harness.settle()
    assert requested(harness) == ["10.0.0.0", "10.0.0.1"] * 2


def test_an_answer_of_a_pod_that_is_deleted_is_forgotten() -> None:
    harness = probed(TCP)
    ask = next(it for it in harness.done if isinstance(it, commands.RunProbe))
    harness.delete(kinds.PODS, ask.pod)
    harness.settle()
    harness.reap(ask.pod)
    harness.settle()
    assert (
        harness.cache.note_answer(ask, controller_cache.ProbeResult(passed=True, at=harness.now))
        == ()
    )
    assert harness.cache.answer(ask.pod_uid, ask.question) is None


# Patches


def test_a_patch_changes_the_job_and_not_its_template() -> None:
    harness = world_with("a")
    patch = {"minAvailable": 2, "tasks": [{"name": "worker", "replicas": 3}], "queue": None}
    entry = Flow(name="a", patch=FlowPatch(job_spec=msgspec.Raw(msgspec.json.encode(patch))))
    harness.submit(make_flow("f", [entry]))
    harness.settle()
    spec = harness.job("default/f-a").spec
    assert (spec.min_available, spec.queue) == (2, "default")
    assert [(task.name, task.replicas) for task in spec.tasks] == [("worker", 3)]
    assert "queue" not in harness.objects["jobs", "default/f-a"]["spec"]


@pytest.mark.parametrize(
    ("value", "patch", "wanted"),
    [
        ({"a": 1, "b": {"c": 1}}, {"b": {"d": 2}}, {"a": 1, "b": {"c": 1, "d": 2}}),
        ({"a": 1}, {"a": None}, {}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
        (
            {"l": [{"name": "x", "v": 1}, {"name": "y"}]},
            {"l": [{"name": "z"}, {"name": "x", "v": 2}]},
            {"l": [{"name": "x", "v": 2}, {"name": "y"}, {"name": "z"}]},
        ),
        ({"l": [{"name": "x"}]}, {"l": []}, {"l": []}),
        ({"l": [{"name": "x"}]}, {"l": [{"v": 1}]}, {"l": [{"v": 1}]}),
    ],
)
def test_a_patch_merges_objects_by_field_and_named_lists_by_name(
    value: object, patch: object, wanted: object
) -> None:
    before = copy.deepcopy((value, patch))
    assert template_patch.merged(value, patch) == wanted
    assert (value, patch) == before

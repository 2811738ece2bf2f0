"""JobFlows and JobTemplates: which job starts when, and what is said of it (spec/jobs.md 7.4)."""

import copy

import msgspec
import pytest

from services.controller.tests.world import World
from stromboli.controller.core import commands
from stromboli.controller.core.store import cache
from stromboli.controller.core.workloads import flows, template_patch
from stromboli.shared import keys, topics
from stromboli.shared.api import flow, kinds
from stromboli.shared.api.flow import Flow, FlowDependsOn, FlowPatch, Probe
from stromboli.testkit.builders import (
    garbled,
    make_flow,
    make_job,
    make_task,
    make_template,
)

F = "default/f"


def world_with(*templates: str, ttl: int | None = None) -> World:
    """A cluster with templates of jobs that need one pod."""
    world = World()
    for name in templates:
        world.submit(make_template(name, make_job(ttl_seconds_after_finished=ttl)))
    return world


def started(entries: dict[str, list[str]], retain: str = "", ttl: int | None = None) -> World:
    """Flow ``f``, and what it starts at once."""
    world = world_with(*entries, ttl=ttl)
    world.submit(make_flow("f", entries, retain=retain))
    world.settle()
    return world


def run(world: World, name: str) -> None:
    """A job's pod runs."""
    world.enqueue(world.group_key(f"default/{name}"))
    world.settle()
    world.run(f"{name}-worker-0")
    world.settle()


def end(world: World, name: str, phase: str = "Succeeded") -> None:
    """A job comes to its end."""
    run(world, name)
    world.change_pod(f"default/{name}-worker-0", phase)
    world.settle()


def found(world: World) -> flow.JobFlow:
    return world.get(kinds.JOB_FLOWS, F)


def phase(world: World) -> str:
    return found(world).status.state.phase


# Order


def test_a_job_starts_when_all_its_targets_are_completed() -> None:
    world = started({"a": [], "b": [], "c": ["a", "b"], "d": ["c"]})
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]
    end(world, "f-a")
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]
    end(world, "f-b")
    assert world.names(kinds.JOBS) == ["f-a", "f-b", "f-c"]
    end(world, "f-c")
    end(world, "f-d")
    assert phase(world) == "Succeed"


def test_a_job_is_its_template_with_marks_and_its_flow_as_owner() -> None:
    world = started({"a": []})
    body = world.objects["jobs", "default/f-a"]
    marks = {keys.CREATED_BY_TEMPLATE: "default.a", keys.CREATED_BY_FLOW: "default.f"}
    assert body["metadata"]["labels"] == marks
    assert body["metadata"]["annotations"] == marks
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("JobFlow", "f", True)
    template = world.objects["jobtemplates", "default/a"]
    assert body["spec"] == template["spec"]


def test_a_job_without_a_scheduler_gets_ours() -> None:
    world = World()
    world.submit(make_template("a", make_job(scheduler="")))
    world.submit(make_flow("f", {"a": []}))
    world.settle()
    assert world.job("default/f-a").spec.scheduler_name == "volcano"


def test_a_flow_with_a_template_of_another_scheduler_is_somebody_elses() -> None:
    world = World()
    world.submit(make_template("a", make_job(scheduler="kueue")))
    world.submit(make_flow("f", {"a": []}))
    world.settle()
    assert not world.names(kinds.JOBS)
    assert found(world).status == flow.JobFlowStatus()
    assert not world.events


def test_a_flow_waits_for_a_template_and_says_so() -> None:
    world = started({"a": []})
    world.submit(make_flow("g", {"late": []}))
    world.settle()
    assert any("no JobTemplate default/late" in it.message for it in world.events.values())
    world.submit(make_template("late"))
    world.settle()
    assert "g-late" in world.names(kinds.JOBS)


@pytest.mark.parametrize(
    ("entries", "word"),
    [({"a": ["b"], "b": ["a"]}, "wait for each other"), ({"a": ["nowhere"]}, "'nowhere'")],
)
def test_an_order_that_cannot_be_is_told_and_starts_nothing(
    entries: dict[str, list[str]], word: str
) -> None:
    """It may have come in while no door stood there."""
    world = started(entries)
    assert not world.names(kinds.JOBS)
    (event,) = world.events.values()
    assert event.reason == "SyncJobFlow"
    assert word in event.message


def test_a_name_that_stands_twice_counts_the_last_time() -> None:
    world = world_with("a", "b")
    entries = [Flow(name="b"), Flow(name="a"), Flow(name="b", depends_on=after("a"))]
    world.submit(make_flow("f", entries))
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a"]


def after(*targets: str, probe: Probe | None = None) -> FlowDependsOn:
    return FlowDependsOn(targets=targets, probe=probe)


def test_the_job_of_somebody_else_under_a_name_is_left_alone_and_told() -> None:
    world = world_with("a")
    world.submit(make_job("f-a"))
    world.submit(make_flow("f", {"a": []}))
    world.settle()
    assert world.job("default/f-a").metadata.controller is None
    assert any("somebody else" in event.message for event in world.events.values())


def test_nothing_is_made_in_place_of_a_job_that_cannot_be_read() -> None:
    world = started({"a": []})
    world.restart()
    world.dirty |= dict.fromkeys(world.picture.apply(garbled(topics.JOBS, "default/f-a")).items)
    before = len(world.done)
    world.settle()
    assert not any(isinstance(it, commands.Create) for it in world.done[before:])


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


def test_the_status_lists_jobs_by_phase_and_tells_each_story() -> None:
    world = started({"a": [], "b": [], "c": ["a"]})
    begun = world.now
    world.wait(10)
    end(world, "f-a")
    run(world, "f-b")
    status = found(world).status
    assert status.state.phase == "Running"
    assert status.completed_jobs == ("f-a",)
    assert status.running_jobs == ("f-b",)
    assert status.pending_jobs == ("f-c",)
    story = status.job_status_list[0]
    assert (story.name, story.state) == ("f-a", "Completed")
    assert (story.start_timestamp, story.end_timestamp) == (begun, world.now)
    assert [it.state for it in story.running_histories] == ["Pending", "Running", "Completed"]
    assert all(it.end_timestamp for it in story.running_histories[:-1])
    assert status.conditions["f-a"].task_status_count["worker"].phase == {"Succeeded": 1}


def test_a_failed_job_fails_its_flow_for_good_and_starts_nothing_more() -> None:
    world = started({"a": [], "b": [], "c": ["b"]})
    end(world, "f-a", "Failed")
    assert phase(world) == "Failed"
    end(world, "f-b")
    assert "f-c" not in world.names(kinds.JOBS)
    assert phase(world) == "Failed"
    assert found(world).status.completed_jobs == ("f-b",)


def test_a_job_in_any_other_phase_is_unknown() -> None:
    world = started({"a": []})
    run(world, "f-a")
    world.delete(kinds.PODS, "default/f-a-worker-0")
    world.put(kinds.JOBS, with_phase(world, "f-a", "Restarting"))
    world.settle()
    assert found(world).status.un_know_jobs == ("f-a",)


def with_phase(world: World, name: str, phase: str) -> dict[str, object]:
    body = world.objects["jobs", f"default/{name}"]
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


def test_a_template_names_the_jobs_that_were_made_from_it() -> None:
    world = started({"a": [], "b": []})
    world.submit(make_flow("g", {"a": []}))
    world.settle()
    assert world.get(kinds.JOB_TEMPLATES, "default/a").status.job_depends_on_list == ("f-a", "g-a")
    world.delete(kinds.JOB_FLOWS, F)
    world.settle()
    assert world.get(kinds.JOB_TEMPLATES, "default/a").status.job_depends_on_list == ("g-a",)
    assert world.get(kinds.JOB_TEMPLATES, "default/b").status.job_depends_on_list == ()


# Jobs that are gone


def test_a_job_that_its_flow_knows_to_be_over_is_not_made_again() -> None:
    world = started({"a": [], "b": ["a"]})
    end(world, "f-a")
    world.delete(kinds.JOBS, "default/f-a")
    world.settle()
    assert world.names(kinds.JOBS) == ["f-b"]
    assert found(world).status.completed_jobs == ("f-a",)


def test_a_job_that_somebody_deletes_before_its_end_is_made_again() -> None:
    world = started({"a": []})
    run(world, "f-a")
    world.delete(kinds.JOBS, "default/f-a")
    world.settle()
    assert len(world.made["default/f-a"]) == 2


def test_a_job_that_lives_no_time_stays_until_its_flow_knows_its_end() -> None:
    """Else the flow would find nothing and make it again."""
    world = started({"a": [], "b": ["a"]}, ttl=0)
    run(world, "f-a")
    world.change_pod("default/f-a-worker-0", "Succeeded")
    world.see()
    for _ in range(5):
        world.step(cache.ReconcileKey("job", "default/f-a"))
        world.see()
    assert world.phase("default/f-a") == "Completed"
    world.settle()
    assert world.names(kinds.JOBS) == ["f-b"]
    assert len(world.made["default/f-a"]) == 1


def test_a_controller_that_sees_an_old_flow_makes_nothing_from_it() -> None:
    world = started({"a": [], "b": ["a"]}, ttl=0)
    old = world.shown(topics.JOB_FLOWS.name)
    end(world, "f-a")
    world.restart(old=old)
    while world.dirty:
        world.step(next(iter(world.dirty)))
    world.settle()
    assert world.names(kinds.JOBS) == ["f-b"]
    assert len(world.made["default/f-a"]) == 1


def test_a_flow_that_is_gone_takes_its_jobs_with_it() -> None:
    world = started({"a": []}, ttl=0)
    world.delete(kinds.JOB_FLOWS, F)
    world.settle()
    assert not world.names(kinds.JOBS)


# Probes


TCP = Probe(tcp_socket_list=(flow.TcpSocket(port=80, task_name="worker"),))


def probed(probe: Probe) -> World:
    """``b`` waits for what ``a`` shows; two pods of ``a`` run."""
    world = World()
    world.submit(make_template("a", make_job(tasks=[make_task(replicas=2)])))
    world.submit(make_template("b"))
    world.submit(
        make_flow("f", [Flow(name="a"), Flow(name="b", depends_on=after("a", probe=probe))])
    )
    world.settle()
    world.enqueue(world.group_key("default/f-a"))
    world.settle()
    for number in (0, 1):
        name = f"default/f-a-worker-{number}"
        world.change_pod(name, "Running", "n1", podIP=f"10.0.0.{number}")
    world.settle()
    return world


def asked(world: World) -> list[str]:
    return [it.host for it in world.done if isinstance(it, commands.Ask)]


def test_a_job_starts_when_the_pods_of_its_target_take_connections() -> None:
    world = probed(TCP)
    assert asked(world) == ["10.0.0.0", "10.0.0.1"]
    assert world.names(kinds.JOBS) == ["f-a"]
    world.answering = {("10.0.0.0", commands.Question(port=80))}
    world.wait(1)
    world.settle()
    assert len(asked(world)) == 2
    world.wait(1)
    world.settle()
    assert len(asked(world)) == 4
    assert world.names(kinds.JOBS) == ["f-a"]
    world.answering.add(("10.0.0.1", commands.Question(port=80)))
    world.wait(2)
    world.settle()
    assert asked(world)[4:] == ["10.0.0.1"]
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]
    assert world.due(cache.ReconcileKey("flow", F)) is None


def test_a_job_starts_when_a_path_answers_with_the_header_asked_for() -> None:
    get = flow.HttpGet(
        task_name="worker",
        path="/ready",
        port=8080,
        http_header=flow.HttpHeader(name="X-Flow", value="yes"),
    )
    world = probed(Probe(http_get_list=(get,)))
    question = commands.Question(port=8080, path="/ready", header=("X-Flow", "yes"))
    assert {it.question for it in world.done if isinstance(it, commands.Ask)} == {question}
    world.answering = {(f"10.0.0.{number}", question) for number in (0, 1)}
    world.wait(2)
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_job_starts_when_enough_pods_of_a_task_are_in_a_phase() -> None:
    world = probed(
        Probe(task_status_list=(flow.TaskStatusProbe(task_name="worker", phase="Succeeded"),))
    )
    world.change_pod("default/f-a-worker-0", "Succeeded")
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a"]


def test_a_running_phase_lets_the_next_job_start_while_its_target_runs() -> None:
    world = probed(
        Probe(task_status_list=(flow.TaskStatusProbe(task_name="worker", phase="Running"),))
    )
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]
    assert not asked(world)


def test_a_task_that_its_job_can_do_without_has_to_show_something_all_the_same() -> None:
    world = World()
    spare = make_task("spare", 2, min_available=0)
    world.submit(make_template("a", make_job(tasks=[make_task(), spare], min_available=1)))
    world.submit(make_template("b"))
    probe = Probe(task_status_list=(flow.TaskStatusProbe(task_name="spare", phase="Running"),))
    world.submit(
        make_flow("f", [Flow(name="a"), Flow(name="b", depends_on=after("a", probe=probe))])
    )
    world.settle()
    world.enqueue(world.group_key("default/f-a"))
    world.settle()
    world.run("f-a-worker-0")
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a"]
    world.run("f-a-spare-0")
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_target_that_no_test_looks_at_has_to_complete() -> None:
    world = probed(Probe(tcp_socket_list=(flow.TcpSocket(port=80, task_name="driver"),)))
    assert world.names(kinds.JOBS) == ["f-a"]
    for number in (0, 1):
        world.change_pod(f"default/f-a-worker-{number}", "Succeeded")
    world.settle()
    assert world.names(kinds.JOBS) == ["f-a", "f-b"]


def test_a_restarted_controller_asks_anew() -> None:
    world = probed(TCP)
    world.answering = {("10.0.0.0", commands.Question(port=80))}
    world.restart()
    world.settle()
    assert asked(world) == ["10.0.0.0", "10.0.0.1"] * 2


def test_an_answer_of_a_pod_that_is_gone_is_forgotten() -> None:
    world = probed(TCP)
    ask = next(it for it in world.done if isinstance(it, commands.Ask))
    world.delete(kinds.PODS, ask.pod)
    world.settle()
    world.reap(ask.pod)
    world.settle()
    assert world.picture.note_answer(ask, cache.Answer(passed=True, at=world.now)) == ()
    assert world.picture.answer(ask.pod_uid, ask.question) is None


# Patches


def test_a_patch_changes_the_job_and_not_its_template() -> None:
    world = world_with("a")
    patch = {"minAvailable": 2, "tasks": [{"name": "worker", "replicas": 3}], "queue": None}
    entry = Flow(name="a", patch=FlowPatch(job_spec=msgspec.Raw(msgspec.json.encode(patch))))
    world.submit(make_flow("f", [entry]))
    world.settle()
    spec = world.job("default/f-a").spec
    assert (spec.min_available, spec.queue) == (2, "default")
    assert [(task.name, task.replicas) for task in spec.tasks] == [("worker", 3)]
    assert "queue" not in world.objects["jobs", "default/f-a"]["spec"]


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

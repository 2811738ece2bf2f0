"""Events of a JobFlow about jobs that it creates, and about those that it cannot create."""

from services.controller.tests import test_flows
from stromboli.controller.core import commands, failures
from stromboli.controller.core.store import controller_cache
from stromboli.controller.core.workloads import child_jobs
from stromboli.shared import topics
from stromboli.shared.api import kinds
from stromboli.testkit.builders import make_flow, make_job, tombstone_of, undecodable_record


def test_a_job_counts_as_created_once_it_is_there() -> None:
    """Its creation may be refused: a queue may be closed by now."""
    harness = test_flows.world_with("a")
    harness.submit(make_flow("f", {"a": []}))
    harness.see()
    plan = harness.plan(controller_cache.ReconcileKey("flow", test_flows.F))
    planned = [it for stage in plan for it in stage]
    assert any(isinstance(it, commands.Create) for it in planned)
    assert not any(isinstance(it, commands.RecordEvent) for it in planned)
    harness.settle()
    assert [it.message for it in harness.events.values() if it.reason == "Created"] == [
        "created job f-a"
    ]
    harness.restart()
    harness.events.clear()
    harness.settle()
    assert "Created" not in harness.reasons()


def test_what_the_cluster_refuses_is_reported_on_the_flow() -> None:
    harness = test_flows.started({"a": []})
    create = next(it for it in harness.done if isinstance(it, commands.Create) and it.name == "f-a")
    event = failures.event(
        harness.cache,
        controller_cache.ReconcileKey("flow", test_flows.F),
        create,
        "too long",
        harness.now,
    )
    assert event is not None
    assert (event.kind, event.name, event.reason) == (kinds.JOB_FLOWS, "f", "FailedCreate")
    assert event.message == "create Job f-a: too long"
    write = child_jobs.write_status(
        kinds.JOB_FLOWS, test_flows.found(harness), test_flows.found(harness).status
    )
    refused = failures.event(
        harness.cache,
        controller_cache.ReconcileKey("flow", test_flows.F),
        write,
        "no right",
        harness.now,
    )
    assert refused is not None
    assert refused.reason == "StatusError"


def test_a_job_is_created_once_the_job_that_has_its_name_is_deleted() -> None:
    """The Event asks the user to delete it, and no object of the flow changes then."""
    harness = test_flows.world_with("a")
    harness.submit(make_job("f-a"))
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    assert "FailedCreate" in harness.reasons()
    harness.delete(kinds.JOBS, "default/f-a")
    harness.settle()
    assert [job.metadata.name for job in harness.cache.children(test_flows.found(harness))] == [
        "f-a"
    ]


def test_a_job_is_created_once_an_unreadable_job_of_its_name_is_deleted() -> None:
    harness = test_flows.world_with("a")
    harness.cache.apply(undecodable_record(topics.JOBS, "default/f-a"))
    harness.submit(make_flow("f", {"a": []}))
    harness.settle()
    assert "FailedCreate" in harness.reasons()
    harness.show(tombstone_of(make_job("f-a")))
    harness.settle()
    assert harness.names(kinds.JOBS) == ["f-a"]


def test_a_job_is_created_once_that_of_another_flow_with_its_name_is_deleted() -> None:
    """Flow ``f`` and template ``a-b`` name the same job as flow ``f-a`` and template ``b``."""
    harness = test_flows.world_with("a-b", "b")
    harness.submit(make_flow("f", {"a-b": []}))
    harness.settle()
    harness.submit(make_flow("f-a", {"b": []}))
    harness.settle()
    assert "FailedCreate" in harness.reasons()
    harness.delete(kinds.JOB_FLOWS, "default/f")
    harness.settle()
    assert [
        job.metadata.name
        for job in harness.cache.children(harness.get(kinds.JOB_FLOWS, "default/f-a"))
    ] == ["f-a-b"]

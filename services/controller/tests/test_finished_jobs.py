"""A finished job costs the controller little more than its objects."""

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import evict, finish, running
from stromboli.controller.core.jobs import job_pods
from stromboli.testkit.builders import make_job, make_task


def finished(pods: int) -> CoreHarness:
    """Its pods have succeeded and are kept."""
    harness = running(make_job(tasks=[make_task(replicas=pods)]))
    finish(harness, *["Succeeded"] * pods)
    assert harness.phase() == "Completed"
    return harness


def test_values_derived_from_pods_are_dropped_at_the_end() -> None:
    assert running(make_job()).cache.derived
    assert not finished(pods=2).cache.derived


def test_a_job_of_many_pods_keeps_them() -> None:
    """Its pods are deleted one by one; deriving the values again for each would be quadratic."""
    assert finished(pods=job_pods.MOST_RELEASED + 1).cache.derived


def test_a_pod_that_is_deleted_after_the_end_is_forgotten() -> None:
    harness = finished(pods=2)
    published = len(harness.sent)
    evict(harness, "j1-worker-0")
    (record,) = harness.cache.published.jobs["default/j1"].tasks.values()
    assert record.pod == "j1-worker-1"
    assert len(harness.sent) == published
    assert harness.job().status.succeeded == 2
    assert not harness.cache.derived


def test_no_old_version_of_a_job_is_kept() -> None:
    harness = finished(pods=1)
    kept = [job for job, _ in harness.cache.blockers.values()]
    assert kept in ([], [harness.cache.job("default/j1")])

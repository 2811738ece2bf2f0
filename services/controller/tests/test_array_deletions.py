"""Array jobs whose pods are deleted while they run: kubelets report such pods as failed."""

import pytest

from services.controller.tests.support.core_harness import CoreHarness
from services.controller.tests.support.scenarios import J, go_on, reap_all, running
from stromboli.shared import keys
from stromboli.shared.api import batch, kinds
from stromboli.testkit.builders import make_command, make_job, make_task


def array(retries: int = 0) -> CoreHarness:
    """Indexes 0 and 1 run."""
    spec = batch.ArraySpec(indexes="0-3", max_retries=retries)
    return running(make_job(tasks=[make_task("t", 2)], min_available=0, array=spec))


def killed(harness: CoreHarness, index: int, phase: str = "Failed") -> None:
    """The kubelet reports the end of a terminating pod, before the pod is gone."""
    harness.change_pod(f"{J}-t-{index}", phase, exit_code=143 if phase == "Failed" else 0)
    harness.settle()


def results(harness: CoreHarness) -> tuple[str, str, dict[str, int]]:
    status = harness.job().status.array or batch.ArrayStatus()
    return status.succeeded, status.failed, dict(status.retries)


def indexes(harness: CoreHarness) -> list[str | None]:
    return [pod.metadata.annotation(keys.TASK_INDEX) for pod in harness.pods()]


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen terminating", "seen once failed"])
def test_an_index_whose_pod_was_deleted_has_no_result_and_runs_again(
    retries: int, *, is_seen: bool
) -> None:
    harness = array(retries)
    harness.delete(kinds.PODS, f"{J}-t-0")
    if is_seen:
        harness.settle()
    killed(harness, 0)
    reap_all(harness)
    assert results(harness) == ("", "", {})
    assert indexes(harness) == ["0", "1"]
    go_on(harness)
    for name in ("0", "1", "2", "3"):
        harness.run(f"j1-t-{name}")
        harness.change_pod(f"{J}-t-{name}", "Succeeded", exit_code=0)
        harness.settle()
    assert (harness.phase(), results(harness)) == ("Completed", ("0-3", "", {}))


def test_an_index_that_succeeded_while_its_pod_was_deleted_has_its_result() -> None:
    harness = array()
    harness.delete(kinds.PODS, f"{J}-t-0")
    killed(harness, 0, "Succeeded")
    assert results(harness) == ("0", "", {})


def test_an_index_that_failed_before_its_pod_was_deleted_has_failed() -> None:
    harness = array()
    killed(harness, 0)
    harness.delete(kinds.PODS, f"{J}-t-0")
    harness.settle()
    reap_all(harness)
    assert results(harness) == ("", "0", {})
    assert indexes(harness) == ["1", "2"]


def test_indexes_that_a_suspension_ended_run_again_after_it() -> None:
    harness = array()
    harness.submit(make_command("c1", "AbortJob", harness.job()))
    harness.settle()
    killed(harness, 0)
    killed(harness, 1)
    reap_all(harness)
    assert (harness.phase(), results(harness)) == ("Aborted", ("", "", {}))
    harness.submit(make_command("c2", "ResumeJob", harness.job()))
    harness.settle()
    go_on(harness)
    assert (harness.phase(), indexes(harness)) == ("Running", ["0", "1"])

"""Array jobs whose pods are deleted while they run: kubelets report such pods as failed."""

import contextlib

import pytest

from services.controller.tests.support.core_harness import CoreHarness, KilledError
from services.controller.tests.support.scenarios import J, edit, go_on, reap_all, running, submitted
from stromboli.controller.core.store.controller_cache import ReconcileKey
from stromboli.shared import keys, topics
from stromboli.shared.api import batch, kinds
from stromboli.shared.formats import indexes as indexes_format
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


def indexes_of(text: str) -> list[str]:
    return [str(index) for index in indexes_format.parse(text)] if text else []


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


READS = ["without a restart", "pods first", "events first"]
"""Which records a controller has read when it learns that a pod is deleted: the previous controller
learns it itself, or a new one reads the pods' topic before or after the events."""


def vanished(harness: CoreHarness, index: int, phase: str, reads: str) -> None:
    """The pod ends and is deleted before a reconcile observes either."""
    key = f"{J}-t-{index}"
    harness.change_pod(key, phase, exit_code=int(phase == "Failed"))
    old = harness.shown(topics.PODS.name)
    harness.reap(key)
    if reads == "pods first":
        harness.read_first = tuple(harness.unseen[topics.PODS.name])
        harness.restart()
    elif reads == "events first":
        harness.restart(old=old)
    harness.settle()


@pytest.mark.parametrize("reads", READS)
def test_an_index_that_succeeded_before_its_pod_vanished_has_its_result(reads: str) -> None:
    """As when pods are garbage collected while the controller restarts. A second run would repeat
    the side effects of the first one."""
    harness = array()
    vanished(harness, 0, "Succeeded", reads)
    assert results(harness) == ("0", "", {})
    assert indexes(harness) == ["1", "2"]
    assert [state for pod, state in harness.tasks_seen() if pod == "j1-t-0"][-1:] == ["Succeeded"]


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize(
    ("retries", "result", "pods"),
    [(0, ("", "0", {}), ["1", "2"]), (1, ("", "", {"0": 1}), ["0", "1"])],
)
def test_an_index_that_failed_before_its_pod_vanished_has_failed_once(
    retries: int, result: tuple[str, str, dict[str, int]], pods: list[str], reads: str
) -> None:
    harness = array(retries)
    vanished(harness, 0, "Failed", reads)
    assert results(harness) == result
    assert indexes(harness) == pods
    assert ("j1-t-0", "Failed") in harness.tasks_seen()
    assert ("j1-t-0", "Gone") not in harness.tasks_seen()


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("commands_before", range(4))
def test_a_result_is_not_lost_if_the_controller_is_killed_before_it_is_recorded(
    phase: str, commands_before: int
) -> None:
    """The pod is deleted before the next controller starts. Therefore the end of a pod is published
    only once the status has its result."""
    harness = array()
    key = f"{J}-t-0"
    harness.change_pod(key, phase, exit_code=int(phase == "Failed"))
    harness.see()
    harness.commands_left = commands_before
    with contextlib.suppress(KilledError):
        harness.settle()
    old = harness.shown(topics.PODS.name)
    harness.reap(key)
    harness.restart(old=old)
    harness.settle()
    assert results(harness) == (("0", "", {}) if phase == "Succeeded" else ("", "0", {}))
    assert indexes(harness) == ["1", "2"]


def test_a_failed_write_of_a_result_is_repeated_before_the_end_of_its_pod_is_published() -> None:
    harness = array()
    harness.change_pod(f"{J}-t-0", "Succeeded", exit_code=0)
    harness.see()
    edit(harness, J, ttl_seconds_after_finished=60)  # another writer: our write conflicts
    harness.step(ReconcileKey("job", J))
    assert results(harness) == ("", "", {})
    assert ("j1-t-0", "Succeeded") not in harness.tasks_seen()
    harness.reap(f"{J}-t-0")
    harness.settle()
    assert results(harness) == ("0", "", {})
    assert ("j1-t-0", "Succeeded") in harness.tasks_seen()


@pytest.mark.parametrize("commands_before", range(1, 9))
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_without_a_published_event_has_its_result(phase: str, commands_before: int) -> None:
    """The controller is killed after it created pods and before it published anything about them;
    they end and are deleted before the next one starts."""
    spec = batch.ArraySpec(indexes="0-3", max_retries=0)
    harness = submitted(make_job(tasks=[make_task("t", 2)], min_available=0, array=spec))
    harness.enqueue(harness.group_key())
    harness.see()
    harness.commands_left = commands_before
    with contextlib.suppress(KilledError):
        harness.settle()
    ended = indexes(harness)
    for pod in harness.pods():
        harness.change_pod(pod.metadata.key, phase, exit_code=int(phase == "Failed"))
        harness.reap(pod.metadata.key)
    harness.read_first = tuple(harness.unseen[topics.PODS.name])
    harness.restart()
    harness.settle()
    succeeded, failed, _ = results(harness)
    assert indexes_of(succeeded if phase == "Succeeded" else failed) == ended
    assert not set(indexes(harness)) & set(ended)

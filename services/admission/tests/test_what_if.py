"""Rules of what-if questions: what a job would be, and which gang the scheduler simulates."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.admission.core import what_if
from stromboli.shared.api import kinds
from stromboli.shared.api.views.what_if import JobIf
from stromboli.shared.messages.admission import Violation

GPU = "nvidia.com/gpu"


def make_task(name: str, replicas: int, requests: dict[str, str]) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"containers": [container]}},
    }


def make_job(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    total = sum(task["replicas"] for task in tasks)
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {"name": "train", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "a",
            "minAvailable": total,
            "tasks": list(tasks),
            **spec,
        },
    }


ONE = make_job(make_task("w", 2, {"cpu": "1", GPU: "8"}))
TWO = make_job(make_task("ps", 1, {"cpu": "2"}), make_task("w", 4, {"cpu": "1", GPU: "8"}))


def changed(job: dict[str, Any], **change: Any) -> dict[str, Any]:
    found = what_if.changed_job(job, JobIf(**change))
    assert not isinstance(found, Violation), found
    spec: dict[str, Any] = found["spec"]
    return spec


def refused(job: dict[str, Any], **change: Any) -> Violation:
    found = what_if.changed_job(job, JobIf(**change))
    assert isinstance(found, Violation)
    return found


def requests(spec: dict[str, Any], task: int = 0) -> dict[str, str]:
    (container,) = spec["tasks"][task]["template"]["spec"]["containers"]
    found: dict[str, str] = container["resources"]["requests"]
    return found


def test_several_changes_combine() -> None:
    spec = changed(ONE, queue="b", priority_class_name="high", gpus={"": 4}, replicas={"": 6})
    assert (spec["queue"], spec["priorityClassName"]) == ("b", "high")
    assert (spec["minAvailable"], spec["tasks"][0]["replicas"]) == (6, 6)
    assert requests(spec) == {"cpu": "1", GPU: "4"}
    assert ONE["spec"]["queue"] == "a"


def test_gpus_are_those_of_tasks_that_request_some() -> None:
    spec = changed(TWO, gpus={"": 2})
    assert (requests(spec, 0), requests(spec, 1)) == ({"cpu": "2"}, {"cpu": "1", GPU: "2"})
    spec = changed(TWO, gpus={"ps": 1, "w": 0})
    assert (requests(spec, 0), requests(spec, 1)) == ({"cpu": "2", GPU: "1"}, {"cpu": "1"})


@pytest.mark.parametrize(
    ("job", "change", "reason"),
    [
        (ONE, {"queue": "a"}, "changes nothing"),
        (ONE, {"replicas": {"x": 1}}, "no task 'x'"),
        (TWO, {"replicas": {"": 1}}, "several tasks"),
        (TWO, {"gpus": {"x": 1}}, "no task 'x'"),
        (
            make_job(make_task("a", 1, {}), make_task("b", 1, {})),
            {"gpus": {"": 1}},
            "no task requests GPUs",
        ),
        (
            make_job(make_task("a", 1, {"volcano.sh/vgpu-memory": "4"})),
            {"gpus": {"": 1}},
            "counts whole GPUs",
        ),
    ],
)
def test_a_change_that_is_none_is_refused(
    job: dict[str, Any], change: dict[str, Any], reason: str
) -> None:
    violation = refused(job, **change)
    assert reason in violation.reason
    assert violation.expected


def test_nodes_alone_leave_the_job() -> None:
    assert changed(ONE, nodes=2) == ONE["spec"]


def test_a_queue_and_requests_need_a_new_job_and_sizes_do_not() -> None:
    assert JobIf(queue="b").is_new
    assert JobIf(gpus={"": 1}).is_new
    in_place = JobIf(replicas={"": 1}, min_available=1, priority_class_name="high", nodes=1)
    assert not in_place.is_new
    assert in_place.sizes_change
    assert not JobIf(nodes=1).changes_job


def test_the_gang_is_that_of_the_jobs_tasks() -> None:
    job = make_job(
        make_task("ps", 1, {"cpu": "2"}),
        make_task("w", 4, {"cpu": "1", GPU: "8"}),
        minAvailable=3,
    )
    job["spec"]["tasks"][1]["minAvailable"] = 2
    gang = what_if.gang_of(kinds.JOBS.decode(msgspec.json.encode(job)), {})
    assert (gang.queue, gang.min_member) == ("a", 3)
    assert gang.min_task_member == {"ps": 1, "w": 2}
    assert (gang.min_resources["cpu"], gang.min_resources[GPU]) == ("4", "16")
    assert [(task.name, task.replicas) for task in gang.tasks] == [("ps", 1), ("w", 4)]
    assert {task.spec.scheduler_name for task in gang.tasks} == {"volcano"}


def test_a_job_whose_tasks_wait_for_each_other_has_no_known_gang() -> None:
    job = make_job(make_task("a", 1, {}), make_task("b", 1, {}))
    job["spec"]["tasks"][1]["dependsOn"] = {"name": ["a"]}
    decoded = kinds.JOBS.decode(msgspec.json.encode(job))
    assert what_if.releases_tasks(decoded)
    assert what_if.gang_of(decoded, {}).tasks == ()


@given(
    st.builds(
        JobIf,
        queue=st.none() | st.text(max_size=3),
        gpus=st.dictionaries(st.sampled_from(["", "w", "x"]), st.integers(0, 9), max_size=2),
        replicas=st.dictionaries(st.sampled_from(["", "w", "x"]), st.integers(0, 9), max_size=2),
        min_available=st.none() | st.integers(0, 9),
    )
)
def test_any_change_gives_a_job_or_a_reason_and_changes_no_input(change: JobIf) -> None:
    before = msgspec.json.encode(ONE)
    found = what_if.changed_job(ONE, change)
    if isinstance(found, Violation):
        assert found.reason
    else:
        kinds.JOBS.decode(msgspec.json.encode(found))
    assert msgspec.json.encode(ONE) == before

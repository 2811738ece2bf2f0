"""Which container of a job a session is opened in."""

from typing import Any

import pytest

from stromboli.client import errors
from stromboli.client.sessions import targets
from stromboli.shared import keys
from stromboli.shared.api import batch, core
from stromboli.testkit import builders


def pod(task: str, index: int, phase: str, *containers: str) -> core.Pod:
    """A pod of the job ``j`` with these containers."""
    names = containers or ("main",)
    return builders.make_pod(
        f"j-{task}-{index}",
        labels={keys.TASK_INDEX: str(index)},
        task=task,
        index=index,
        phase=phase,
        containers=[core.Container(name=name) for name in names],
    )


@pytest.fixture
def job() -> batch.Job:
    return builders.make_job("j", tasks=[builders.make_task("w"), builders.make_task("ps")])


def test_the_first_running_pod_by_task_and_index_is_chosen(job: batch.Job) -> None:
    pods = [pod("w", 10, "Running"), pod("w", 9, "Running"), pod("w", 1, "Pending")]
    assert targets.choose(job, pods, task="w").pod == "j-w-9"
    assert targets.choose(job, pods, indexes=[10]).pod == "j-w-10"


@pytest.mark.parametrize(
    ("pods", "options", "reason"),
    [
        ([pod("w", 0, "Pending")], {}, "pod j-w-0 is Pending, not Running"),
        ([pod("w", 0, "Succeeded")], {}, "pod j-w-0 is Succeeded, not Running"),
        (
            [pod("w", 0, "Pending"), pod("w", 1, "Failed")],
            {},
            r"none of its 2 matching pods is Running \(1 Failed, 1 Pending\)",
        ),
        ([], {}, "it has no matching pod now"),
        ([pod("w", 0, "Running")], {"task": "no"}, "task 'no' not found; its tasks are w, ps"),
        ([pod("w", 0, "Running")], {"container": "x"}, "container 'x' not found in j-w-0"),
        ([pod("w", 0, "Running", "a", "b")], {}, "several containers: a, b; specify one"),
    ],
)
def test_without_one_container_the_reason_is_named(
    job: batch.Job, pods: list[core.Pod], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(errors.NoContainerError, match=reason):
        targets.choose(job, pods, **options)


def test_ports_need_no_container(job: batch.Job) -> None:
    """Containers of a pod share its network."""
    target = targets.choose(job, [pod("w", 0, "Running", "a", "b")], any_container=True)
    assert target == targets.Target("default", "j-w-0", "a")

"""Jobs of every kind, as Hypothesis strategies."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from stromboli.controller.core import lifecycle, termination_causes
from stromboli.shared.api import batch
from stromboli.testkit.builders import make_job, make_task

EVENTS = (
    "PodFailed",
    "PodEvicted",
    "TaskCompleted",
    "TaskFailed",
    "*",
    *sorted(termination_causes.CAUSES),
)
OOM = 137
SOON = st.sampled_from([None, "20s"])
LIMITS = {
    "active_deadline_seconds": st.sampled_from([None, None, 30, 100]),
    "ttl_seconds_after_finished": st.sampled_from([None, None, 0, 60]),
    "min_success": st.sampled_from([None, None, 1, 2]),
    "plugins": st.just({"svc": ()}),
}
RESTARTS = ("RestartJob", *sorted(lifecycle.PARTIAL))
ACTIONS = st.sampled_from((*RESTARTS, *RESTARTS, *lifecycle.ACTIONS))
POLICIES = st.lists(
    st.builds(
        batch.LifecyclePolicy,
        action=ACTIONS,
        event=st.sampled_from(EVENTS),
        timeout=SOON,
        max_retries=st.sampled_from([None, None, 1]),
        backoff=SOON,
    )
    | st.builds(
        batch.LifecyclePolicy, action=ACTIONS, exit_code=st.sampled_from([1, OOM]), timeout=SOON
    )
    | st.builds(
        batch.LifecyclePolicy, action=ACTIONS, event=st.just("PodPending"), timeout=st.just("20s")
    ),
    max_size=3,
    unique_by=lambda policy: policy.event or policy.exit_code,
)


@st.composite
def some_tasks(draw: st.DrawFn, names: tuple[str, ...] = ("w", "v")) -> list[batch.TaskSpec]:
    task_specs = []
    for name in names[: draw(st.integers(1, len(names)))]:
        replicas = draw(st.integers(0, 3))
        size = draw(st.sampled_from([it for it in (0, 1, 2) if not it or replicas % it == 0]))
        parts = batch.PartitionPolicy(
            total_partitions=replicas // max(size, 1), partition_size=size
        )
        task = make_task(
            name,
            replicas,
            min_available=draw(st.none() | st.integers(0, replicas)),
            policies=draw(POLICIES),
            max_retry=draw(st.sampled_from([0, 1, -1])),
        )
        if size and replicas:
            task = msgspec.structs.replace(task, partition_policy=parts)
        task_specs.append(task)
    return task_specs


@st.composite
def some_waves(draw: st.DrawFn) -> list[batch.TaskSpec]:
    """Tasks of which some wait for others, any or all, and never for each other."""
    tasks = draw(some_tasks(("w", "v", "u")))
    order = draw(st.permutations(tasks))
    waiting = {}
    for at, task in enumerate(order[1:], 1):
        first = draw(st.lists(st.sampled_from([it.name for it in order[:at]]), unique=True))
        if first:
            on = batch.DependsOn(name=tuple(first), iteration=draw(st.sampled_from(["any", "all"])))
            waiting[task.name] = msgspec.structs.replace(task, depends_on=on)
    return [waiting.get(task.name, task) for task in tasks]


@st.composite
def arrays(draw: st.DrawFn, name: str) -> batch.Job:
    """An array of some indexes, with as many concurrent pods as it has replicas."""
    replicas = draw(st.integers(1, 3))
    array = batch.ArraySpec(
        indexes=draw(st.sampled_from(["0-4", "0", "1,3-5", "0-6:2"])),
        max_retries=draw(st.integers(0, 2)),
    )
    task = make_task(
        "w",
        replicas,
        min_available=draw(st.none() | st.integers(0, replicas)),
        policies=draw(POLICIES),
        max_retry=draw(st.sampled_from([0, 1, -1])),
    )
    limits: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=LIMITS))
    return make_job(
        name,
        tasks=[task],
        policies=draw(POLICIES),
        max_retry=draw(st.integers(1, 3)),
        min_available=draw(st.integers(0, replicas)),
        array=array,
        **limits,
    )


def jobs(name: str) -> st.SearchStrategy[batch.Job]:
    """Jobs of every kind, nearly all of them valid for admission."""
    return tasked(name) | arrays(name)


@st.composite
def tasked(draw: st.DrawFn, name: str) -> batch.Job:
    tasks = draw(some_tasks() | some_waves())
    requested = sum(task.replicas for task in tasks)
    policies = draw(POLICIES)
    limits: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=LIMITS))
    if draw(st.integers(0, 19)) == 7:
        policies = [batch.LifecyclePolicy(event="PodFailed", action="Nonsense")]
    return make_job(
        name,
        tasks=tasks,
        policies=policies,
        max_retry=draw(st.integers(1, 3)),
        min_available=draw(st.integers(0, requested)),
        **limits,
    )

"""Plugins exclude only jobs of which they choose no victim on any node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import sessions
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared.api import meta
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

PROTECTED = [sessions.plugin("priority"), sessions.plugin("gang"), sessions.plugin("conformance")]
BREAKABLE = [
    sessions.plugin("priority"),
    sessions.plugin("gang", enablePreemptable=False, enableReclaimable=False),
]
LAST = [sessions.plugin("proportion"), sessions.plugin("drf")]
CLASSES = [builders.make_priority_class(f"c{value}", value) for value in range(3)]
JOB = st.tuples(
    st.sampled_from("ab"),  # queue
    st.integers(0, 2),  # priority
    st.integers(1, 3),  # minimum
    st.lists(st.integers(1, 3), min_size=1, max_size=4),  # cpus of its pods
)


@pytest.mark.parametrize("first", [PROTECTED, BREAKABLE], ids=["protected", "breakable"])
@depth.examples(60)
@given(running=st.lists(JOB, max_size=4), waiting=JOB)
def test_a_job_of_which_plugins_choose_a_victim_is_not_excluded(
    first: list[dict[str, object]],
    running: list[tuple[str, int, int, list[int]]],
    waiting: tuple[str, int, int, list[int]],
) -> None:
    objects: list[meta.Object] = [sessions.queue("a"), sessions.queue("b", weight=2), *CLASSES]
    objects.append(builders.make_node("n1", cpu="20", memory="99Gi"))
    for at, (queue, priority, least, cpus) in enumerate([*running, waiting]):
        is_running = at < len(running)
        phase = "Running" if is_running else "Inqueue"
        objects.append(
            builders.make_pod_group(
                f"g{at}", least, queue=queue, phase=phase, priority_class=f"c{priority}"
            )
        )
        objects += [
            builders.make_pod(
                f"g{at}-{index}",
                f"g{at}",
                cpu=str(cpu),
                node="n1" if is_running else "",
                phase="Running" if is_running else "Pending",
            )
            for index, cpu in enumerate(cpus)
        ]
    configured = sessions.configured(first, LAST, run="allocate, preempt, reclaim")
    ssn = sessions.open_given(configured, sessions.given(objects))
    job = ssn.jobs[f"default/g{len(running)}"]
    task = job.pending[0]
    evictor = extension_points.Evictor(job.queue, job.priority)
    for other in ssn.jobs.values():
        victims = list(other.tasks.values())
        if other is job:
            continue
        if other.queue == job.queue and ssn.preemptable(task, victims):
            assert ssn.may_preempt(evictor, other)
        if other.queue != job.queue and ssn.reclaimable(task, victims):
            assert ssn.may_reclaim(evictor, other)

"""A scheduler that skips equal gangs decides in each session as one that has just started.

A scheduler that starts anew remembers no session, so it tries every gang. Both see the same log:
gangs of few shapes arrive in two queues, pods of others end or are being deleted, and decisions are
executed or refused.
"""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support.harness import POLICY, SchedulerHarness
from stromboli.scheduler.core import schedule
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

QUEUES = ("one", "two")
SHAPES = ((1, "2"), (1, "3"), (2, "1"), (3, "1"))
"""Pods and cores of each."""
FILLERS = ("1", "1", "2", "2", "3", "3")
"""Cores of the pods that fill the nodes at first."""

actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("end"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("terminate"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("refuse"), st.just(0), st.just(0)),
        st.tuples(st.just("session"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


class Life:
    """A cluster of two full nodes of 6 cores, and what happens in it."""

    def __init__(self) -> None:
        self.harness = SchedulerHarness()
        self.now = builders.NOON
        self.gangs = 0
        self.running: dict[str, tuple[str, str, str]] = {}  # pod -> group, cores, node
        self.harness.see(*(builders.make_queue(name) for name in QUEUES))
        self.harness.see(*(builders.make_node(f"n{at}", cpu="6") for at in (1, 2)))
        self.harness.see(builders.make_pod_group("fill", 1, queue="one", phase="Running"))
        for at, cpu in enumerate(FILLERS):
            self.running[f"fill-{at}"] = ("fill", cpu, f"n{at % 2 + 1}")
            self.see(f"fill-{at}")

    def see(self, name: str, **more: object) -> None:
        group, cpu, node = self.running[name]
        pod = builders.make_pod(name, group, cpu=cpu, node=node, phase="Running", **more)  # type: ignore[arg-type]  # the builder's own arguments
        self.harness.see(pod)

    def submit(self, shape: int, queue: int) -> None:
        size, cpu = SHAPES[shape]
        name = f"g{self.gangs:02}"
        self.gangs += 1
        self.harness.see(builders.make_pod_group(name, size, queue=QUEUES[queue]))
        for at in range(size):
            self.harness.see(builders.make_pod(f"{name}-w-{at}", name, cpu=cpu))

    def end(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            group, cpu, node = self.running.pop(name)
            self.harness.lose(builders.make_pod(name, group, cpu=cpu, node=node, phase="Running"))

    def terminate(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            self.see(name, deleting=builders.NOON, version=2)

    def session(self, *, is_refused: bool) -> None:
        """Decide, compare with a scheduler that has just started, and execute or refuse."""
        self.now += timedelta(seconds=1)
        fresh = SchedulerHarness(self.harness.log.records)
        expected = schedule.run_session(fresh.cache, self.now, POLICY)
        decided = self.harness.session(self.now)
        assert binds(decided) == binds(expected)
        nominated = {key for key, each in expected.explanations.items() if is_nominated(each)}
        explained = self.harness.cache.explained
        assert {key for key in nominated if not is_nominated(explained.get(key))} == set()
        for at, statement in enumerate(decided.decisions):
            pods = [bind.pod for bind in statement.binds]
            place = at - len(decided.decisions)
            if is_refused:
                self.harness.answer("refused", *pods, decision=place)
                continue
            self.harness.answer("executed", decision=place)
            for bind in statement.binds:
                group = bind.pod.partition("-")[0]
                cpu = cores(self.harness, bind)
                self.running[bind.pod] = (group, cpu, bind.node)
                self.see(bind.pod, version=2)


def cores(harness: SchedulerHarness, bind: messages.Bind) -> str:
    task = next(task for task in harness.cache.model.tasks.values() if task.name == bind.pod)
    return f"{int(task.request[0])}m"


def binds(decided: schedule.SessionResult) -> list[tuple[str, str]]:
    return sorted((bind.pod, bind.node) for each in decided.decisions for bind in each.binds)


def is_nominated(explained: messages.PodGroupExplained | None) -> bool:
    """Whether it waits for room that is being freed, and others may not take it."""
    return explained is not None and explained.tier == "releasing"


@depth.examples(40)
@given(actions)
def test_equal_gangs_are_decided_as_if_all_were_tried(steps: list[tuple[str, int, int]]) -> None:
    life = Life()
    for what, first, second in [*steps, ("session", 0, 0)]:
        if what == "submit":
            life.submit(first, second)
        elif what == "end":
            life.end(first)
        elif what == "terminate":
            life.terminate(first)
        else:
            life.session(is_refused=what == "refuse")

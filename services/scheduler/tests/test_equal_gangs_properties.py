"""A scheduler that skips equal gangs decides in each session as one that has just started.

A scheduler that has just started remembers no session, so it tries every gang. Both see the same
log: gangs of few shapes, priorities and time limits arrive in two queues beside a node that is
reserved later, pods of others end or are being deleted, gangs are deleted, nodes and queues change,
the in-flight limit ends sessions early, a plugin fails, and decisions are executed or refused.
"""

import copy
from collections.abc import Collection
from datetime import timedelta

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from services.scheduler.tests.support.harness import POLICY, SchedulerHarness
from stromboli.scheduler.core import plugins, schedule
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, plugin_isolation
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

QUEUES = ("one", "two")
SHAPES: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1, ("2",)),
    (1, ("3",)),
    (2, ("1", "1")),
    (3, ("1", "1", "1")),
    (2, ("1", "3")),
    (1, ("1", "2")),
    (1, ("2", "2")),
)
"""The minimum of a gang, and the cores of each pod. All pods have one role."""
KINDS: tuple[dict[str, bool], ...] = (
    {},
    {},
    {},
    {"is_urgent": True},
    {"is_short": True},
    {"is_gated": True},
)
"""What distinguishes a gang from others of its shape."""
FILLERS = ("1", "1", "2", "2", "3", "3")
"""Cores of the pods that fill the nodes at first."""
NUMBER = st.integers(0, 99)
"""Selects an object: the number modulo the objects that there are."""
Step = tuple[str, int]

palettes = st.lists(
    st.tuples(st.integers(0, len(SHAPES) - 1), st.integers(0, len(KINDS) - 1), st.integers(0, 1)),
    min_size=1,
    max_size=3,
)
"""Shape, kind and queue of the gangs of one life: few, so that many gangs are equal."""
CHANGES = ("submit", "end", "terminate", "cancel", "ungate", "node", "queue", "plugin")
steps_of = st.lists(
    st.one_of(
        *(st.tuples(st.just(what), NUMBER) for what in ("submit", "end", "end", *CHANGES)),
        *(
            st.tuples(st.just(what), st.integers(1, 3))
            for what in ("session", "session", "session", "session", "refuse", "limited")
        ),
    ),
    min_size=5,
    max_size=30,
)


class Life:
    """A cluster of two full nodes of 6 cores, and what happens in it."""

    def __init__(self, palette: list[tuple[int, int, int]]) -> None:
        self.harness = SchedulerHarness()
        self.now = builders.NOON
        self.palette = palette
        self.gangs = self.version = 0
        self.is_broken = False
        self.failures = plugin_isolation.FailureHistory()
        self.running: dict[str, tuple[str, str, str]] = {}  # pod -> group, cores, node
        self.waiting: dict[str, list[core.Pod]] = {}  # group -> its pods when it came
        self.harness.see(*(builders.make_queue(name) for name in QUEUES))
        self.harness.see(*(builders.make_node(f"n{at}", cpu="6") for at in (1, 2)))
        self.harness.see(builders.make_priority_class("urgent", 10))
        starts = builders.NOON + timedelta(minutes=30)
        self.harness.see(builders.make_reservation("later", starts, timedelta(hours=1), "n2"))
        self.harness.see(builders.make_pod_group("fill", 1, queue="one", phase="Running"))
        for at, cpu in enumerate(FILLERS):
            self.running[f"fill-{at}"] = ("fill", cpu, f"n{at % 2 + 1}")
            self.see(f"fill-{at}")

    def see(self, name: str, **more: object) -> None:
        group, cpu, node = self.running[name]
        pod = builders.make_pod(name, group, cpu=cpu, node=node, phase="Running", **more)  # type: ignore[arg-type]  # the builder's own arguments
        self.harness.see(pod)

    def submit(self, number: int) -> None:
        shape, kind, queue = self.palette[number % len(self.palette)]
        minimum, cores_of = SHAPES[shape]
        distinct = KINDS[kind]
        name = f"g{self.gangs:02}"
        self.gangs += 1
        group = builders.make_pod_group(
            name,
            minimum,
            queue=QUEUES[queue],
            priority_class="urgent" if "is_urgent" in distinct else "",
            annotations={keys.RUNNING_ESTIMATE: "5m"} if "is_short" in distinct else None,
        )
        gates = ("test",) if "is_gated" in distinct else ()
        self.waiting[name] = [
            builders.make_pod(f"{name}-w-{at}", name, cpu=cpu, gates=gates)
            for at, cpu in enumerate(cores_of)
        ]
        self.harness.see(group, *self.waiting[name])

    def end(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            group, cpu, node = self.running.pop(name)
            self.harness.lose(builders.make_pod(name, group, cpu=cpu, node=node, phase="Running"))

    def terminate(self, number: int) -> None:
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            self.see(name, deleting=builders.NOON, version=self.next_version())

    def cancel(self, number: int) -> None:
        """Delete a gang that waits as a whole."""
        whole = self.whole()
        if whole:
            name = whole[number % len(whole)]
            self.harness.lose(*self.waiting.pop(name), builders.make_pod_group(name))

    def ungate(self, number: int) -> None:
        gated = [name for name in self.whole() if self.waiting[name][0].spec.scheduling_gates]
        if gated:
            name = gated[number % len(gated)]
            version = self.next_version()
            self.waiting[name] = [
                builders.make_pod(pod.metadata.name, name, cpu=cpu, version=version)
                for pod, cpu in (
                    (each, cores(self.harness, each.metadata.name)) for each in self.waiting[name]
                )
            ]
            self.harness.see(*self.waiting[name])

    def whole(self) -> list[str]:
        """Gangs without a pod on a node."""
        started = {group for group, _, _ in self.running.values()}
        return sorted(self.waiting.keys() - started)

    def node(self, number: int) -> None:
        """Close or open a node."""
        is_closed, version = number % 3 == 0, self.next_version()
        self.harness.see(
            builders.make_node(
                f"n{number % 2 + 1}", cpu="6", unschedulable=is_closed, version=version
            )
        )

    def queue(self, number: int) -> None:
        weight, version = number % 3 + 1, self.next_version()
        self.harness.see(builders.make_queue(QUEUES[number % 2], weight=weight, version=version))

    def plugin(self, number: int) -> None:
        """Let a plugin fail from the next session on, or no longer."""
        self.is_broken = number % 2 == 0

    def next_version(self) -> int:
        self.version += 1
        return 100 + self.version

    def find(self, name: str, opened: Collection[str]) -> interfaces.PluginFactory:
        if self.is_broken and name == "drf":
            return fail
        return plugins.find(name, opened)

    def session(self, length: int = 1, *, is_refused: bool = False, limit: int = 2000) -> None:
        """Decide, compare with a scheduler that has just started, and execute or refuse."""
        self.now += timedelta(seconds=length)
        by = msgspec.structs.replace(POLICY, max_in_flight=limit)
        fresh = SchedulerHarness(self.harness.log.records)
        also_failed = copy.deepcopy(self.failures)
        expected = schedule.run_session(
            fresh.cache, self.now, by, find=self.find, plugin_failures=also_failed
        )
        skipped = self.harness.cache.model.skipped
        decided = self.harness.session(self.now, by, find=self.find, plugin_failures=self.failures)
        event(f"gangs skipped: {min(len(skipped), 3)}")
        assert len(self.harness.cache.quarantine) == 0
        assert binds(decided) == binds(expected)
        assert decided.orders == expected.orders
        nominated = {key for key, each in expected.explanations.items() if is_nominated(each)}
        explained = self.harness.cache.explained
        assert {key for key in nominated if not is_nominated(explained.get(key))} == set()
        self.carry_out(decided, is_refused=is_refused)

    def carry_out(self, decided: schedule.SessionResult, *, is_refused: bool) -> None:
        for at, statement in enumerate(decided.decisions):
            pods = [bind.pod for bind in statement.binds]
            place = at - len(decided.decisions)
            if is_refused:
                self.harness.answer("refused", *pods, decision=place)
                continue
            self.harness.answer("executed", decision=place)
            for bind in statement.binds:
                group = bind.pod.partition("-")[0]
                cpu = cores(self.harness, bind.pod)
                self.running[bind.pod] = (group, cpu, bind.node)
                self.see(bind.pod, version=self.next_version())


def fail(options: configuration.PluginOptions) -> interfaces.Plugin:
    raise RuntimeError("odd")


def cores(harness: SchedulerHarness, name: str) -> str:
    task = next(task for task in harness.cache.model.tasks.values() if task.name == name)
    return f"{int(task.request[0])}m"


def binds(decided: schedule.SessionResult) -> list[tuple[str, str]]:
    return sorted((bind.pod, bind.node) for each in decided.decisions for bind in each.binds)


def is_nominated(explained: messages.PodGroupExplained | None) -> bool:
    """Whether it waits for room that is being freed, and others may not take it."""
    return explained is not None and explained.tier == "releasing"


@depth.examples(60)
@given(palettes, steps_of)
def test_equal_gangs_are_decided_as_if_all_were_tried(
    palette: list[tuple[int, int, int]], steps: list[Step]
) -> None:
    life = Life(palette)
    for at in range(6):
        life.submit(at)
    for what, number in [("session", 1), *steps, ("session", 1)]:
        match what:
            case "session" | "refuse":
                life.session(number, is_refused=what == "refuse")
            case "limited":
                life.session(limit=number)
            case _:
                getattr(life, what)(number)

"""Unschedulable gangs are skipped until a change may help them.

``test_scheduler_state_machine`` shows that skipping changes no decision: every session there
decides like one that skips no gang.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec
import numpy as np
import pytest

from services.scheduler.tests.support import sessions
from services.scheduler.tests.support.harness import POLICY, SchedulerHarness
from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import partial_gangs, unschedulable
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import interfaces, plugin_isolation
from stromboli.scheduler.core.framework import session as framework
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.testkit import builders

NODE = builders.make_node("n1", cpu="4", labels={"zone": "a"})


def gang(name: str, cpu: str, size: int = 2, **more: object) -> list[core.Pod]:
    return [builders.make_pod(f"{name}-w-{at}", name, cpu=cpu, **more) for at in range(size)]  # type: ignore[arg-type] # the builder's own arguments


@pytest.fixture
def harness() -> SchedulerHarness:
    """A node of 4 cores, of which a running pod has 3; two gangs wait that do not fit."""
    made = SchedulerHarness()
    made.see(builders.make_queue(), NODE)
    made.see(builders.make_pod_group("runs", 1, phase="Running"))
    made.see(builders.make_pod("runs-0", "runs", cpu="3", node="n1", phase="Running"))
    made.see(builders.make_pod_group("small", 2), *gang("small", "1"))
    made.see(builders.make_pod_group("big", 2), *gang("big", "4"))
    made.session()
    return made


def aside(harness: SchedulerHarness, later: timedelta = timedelta()) -> set[str]:
    """Names of the gangs that the next session skips."""
    now = builders.NOON + later
    harness.cache.unschedulable_gangs.skip_unschedulable(
        harness.cache.model, POLICY.configured, now
    )
    return {key.partition("/")[2] for key in harness.cache.model.skipped}


def test_an_unschedulable_gang_is_skipped(harness: SchedulerHarness) -> None:
    assert aside(harness) == {"small", "big"}


def test_a_new_gang_brings_back_no_skipped_gang(harness: SchedulerHarness) -> None:
    harness.see(builders.make_pod_group("new", 1), *gang("new", "500m", 1))
    assert aside(harness) == {"small", "big"}


def test_new_room_brings_back_the_gangs_that_it_can_hold(harness: SchedulerHarness) -> None:
    """The other gang's pods do not fit there either."""
    harness.apply(*harness.log.lose(builders.make_pod("runs-0", "runs", cpu="3", node="n1")))
    harness.see(
        builders.make_pod("other-0", cpu="2", node="n1", scheduler="other", phase="Running")
    )
    assert aside(harness) == {"big"}


@pytest.mark.parametrize(
    "changed",
    [
        builders.make_node("n2", cpu="8"),
        builders.make_queue(weight=2, version=2),
        builders.make_priority_class("high", 10),
        builders.make_pod_group("small", 1, version=2),
    ],
    ids=["node", "queue", "priority", "group"],
)
def test_a_relevant_change_brings_back_a_skipped_gang(
    harness: SchedulerHarness, changed: core.Node
) -> None:
    harness.see(changed)
    assert "small" not in aside(harness)


def test_a_refused_decision_brings_back_skipped_gangs(harness: SchedulerHarness) -> None:
    """Its resources are free again."""
    harness.see(builders.make_pod_group("last", 1), *gang("last", "1", 1))
    assert harness.session().decisions
    harness.see(builders.make_pod_group("next", 1), *gang("next", "1", 1))
    harness.session()
    assert "next" in aside(harness)
    harness.answer("refused", "last-w-0")
    assert "next" not in aside(harness)


def test_a_gang_of_several_classes_is_skipped_only_if_a_required_one_fits_nowhere(
    harness: SchedulerHarness,
) -> None:
    """Otherwise another order of its tasks might find room."""
    pods = [*gang("either", "800m", 1), builders.make_pod("either-x-0", "either", cpu="900m")]
    harness.see(builders.make_pod_group("either", 2), *pods)
    pods = [*gang("never", "800m", 1), builders.make_pod("never-x-0", "never", cpu="5")]
    harness.see(builders.make_pod_group("never", 2), *pods)
    harness.session()
    assert aside(harness) == {"small", "big", "never"}


def test_a_gang_whose_rejection_depends_on_other_pods_is_always_tried(
    harness: SchedulerHarness,
) -> None:
    near = core.Affinity(
        pod_affinity=core.PodAffinity(
            required_during_scheduling_ignored_during_execution=(
                core.PodAffinityTerm(
                    topology_key="zone",
                    label_selector=core.LabelSelector(match_labels={"app": "none"}),
                ),
            )
        )
    )
    harness.see(builders.make_pod_group("near", 1), *gang("near", "500m", 1, affinity=near))
    harness.session()
    assert aside(harness) == {"small", "big"}


def test_a_few_gangs_are_all_tried_again_after_the_retry_interval(
    harness: SchedulerHarness,
) -> None:
    harness.see(builders.make_pod("other-0", cpu="1", node="n1", phase="Running"))
    decided = schedule.run_session(harness.cache, builders.NOON + timedelta(seconds=5), POLICY)
    assert harness.cache.model.skipped
    assert decided.wake_at == builders.NOON + unschedulable.RETRY_INTERVAL
    assert aside(harness, unschedulable.RETRY_INTERVAL) == set()


def test_without_a_change_no_gang_is_tried_again(harness: SchedulerHarness) -> None:
    """Its explanation would be the same, and an idle scheduler starts no session."""
    later = builders.NOON + unschedulable.RETRY_INTERVAL
    assert schedule.run_session(harness.cache, later, POLICY).wake_at is None
    assert aside(harness, 2 * unschedulable.RETRY_INTERVAL) == {"small", "big"}


def test_many_gangs_are_tried_again_in_turn_and_each_within_the_retry_interval(
    harness: SchedulerHarness,
) -> None:
    """No session tries all of them, and none is left out."""
    together = unschedulable.RETRIED_TOGETHER
    names = {f"many{at:03}" for at in range(4 * together - 2)} | {"small", "big"}
    for name in sorted(names - {"small", "big"}):
        harness.see(builders.make_pod_group(name, 1), *gang(name, "2", 1))
    harness.session()
    harness.see(builders.make_pod("other-0", cpu="1", node="n1", phase="Running"))
    tried: list[str] = []
    latest = builders.NOON
    now: datetime | None = latest
    while now is not None:
        decided = schedule.run_session(harness.cache, now, POLICY)
        skipped = {key.partition("/")[2] for key in harness.cache.model.skipped}
        assert len(names - skipped) <= together
        tried.extend(names - skipped)
        latest, now = now, decided.wake_at
    assert sorted(tried) == sorted(names)
    assert latest == builders.NOON + unschedulable.RETRY_INTERVAL


def test_a_clock_that_is_set_back_delays_no_retry(harness: SchedulerHarness) -> None:
    harness.see(builders.make_pod("other-0", cpu="1", node="n1", phase="Running"))
    assert aside(harness, timedelta(hours=-1)) == set()


def test_no_gang_is_skipped_where_actions_evict(harness: SchedulerHarness) -> None:
    tiers = [[sessions.plugin(name) for name in ("priority", "gang", "predicates")]]
    evicting = sessions.configured(*tiers, run="enqueue, allocate, preempt")
    policy = msgspec.structs.replace(POLICY, configured=evicting)
    schedule.run_session(harness.cache, builders.NOON, policy)
    assert harness.cache.unschedulable_gangs.jobs == frozenset()


class Late:
    """A plugin that fails after the actions."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._is_over = False

    def open(self, ssn: framework.Session) -> None:
        def check(task: entities.Task, view: node_views.NodeView) -> list[extension_points.Check]:
            if self._is_over:
                raise RuntimeError("odd")
            return [
                extension_points.Check(
                    "full", extension_points.Code.UNSCHEDULABLE, np.zeros(view.size, np.bool_)
                )
            ]

        ssn.add_predicate(check, extension_points.Scope.GLOBAL)

    def close(self, ssn: framework.Session) -> None:
        self._is_over = True


def test_a_plugin_that_fails_while_unschedulable_gangs_are_found_stops_no_session() -> None:
    """A plugin that fails there is left out and reported as elsewhere."""
    registry = plugins.Registry({"binpack": lambda: Late})
    tier = [sessions.plugin(name) for name in ("gang", "binpack")]
    by = policy.Policy(configured=sessions.configured(tier))
    made = SchedulerHarness()
    made.see(builders.make_queue(), NODE, builders.make_pod_group("g", 1, phase="Inqueue"))
    made.see(*gang("g", "1"))
    plugin_failures = plugin_isolation.FailureHistory()
    decided = schedule.run_session(
        made.cache, builders.NOON, by, find=registry.find, plugin_failures=plugin_failures
    )
    assert decided.decisions == ()
    assert "RuntimeError: odd" in decided.failures["binpack"]


# Equal gangs -------------------------------------------------------------------------------


@pytest.fixture
def line() -> SchedulerHarness:
    """A full node of 6 cores; four equal gangs of one pod of 2 cores wait, the oldest first."""
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1", cpu="6"))
    made.see(builders.make_pod_group("runs", 1, phase="Running"))
    made.see(builders.make_pod("runs-0", "runs", cpu="4", node="n1", phase="Running"))
    made.see(builders.make_pod("runs-1", "runs", cpu="2", node="n1", phase="Running"))
    for at in range(4):
        made.see(builders.make_pod_group(f"equal-{at}", 1), *gang(f"equal-{at}", "2", 1))
    made.session()
    return made


def free(harness: SchedulerHarness, pod: str, cpu: str) -> None:
    harness.lose(builders.make_pod(pod, "runs", cpu=cpu, node="n1", phase="Running"))


def bound(decided: schedule.SessionResult) -> list[str]:
    return sorted(bind.pod for statement in decided.decisions for bind in statement.binds)


def test_new_room_brings_back_only_the_first_of_equal_gangs(line: SchedulerHarness) -> None:
    free(line, "runs-0", "4")
    assert aside(line) == {"equal-1", "equal-2", "equal-3"}


def test_each_equal_gang_that_starts_brings_back_the_next_one(line: SchedulerHarness) -> None:
    free(line, "runs-0", "4")
    assert bound(line.session()) == ["equal-0-w-0", "equal-1-w-0"]
    assert aside(line) == {"equal-2", "equal-3"}
    free(line, "runs-1", "2")
    assert bound(line.session()) == ["equal-2-w-0"]


def test_no_equal_gang_is_tried_without_room_for_its_minimum(harness: SchedulerHarness) -> None:
    """``small`` needs two pods of one core."""
    harness.lose(builders.make_pod("runs-0", "runs", cpu="3", node="n1", phase="Running"))
    harness.see(
        builders.make_pod("other-0", cpu="2500m", node="n1", scheduler="other", phase="Running")
    )
    assert aside(harness) == {"small", "big"}


def test_equal_gangs_that_a_limit_left_out_start_in_the_next_session(
    line: SchedulerHarness,
) -> None:
    free(line, "runs-0", "4")
    limited = msgspec.structs.replace(POLICY, max_in_flight=1)
    first = schedule.run_session(line.cache, builders.NOON, limited)
    assert bound(first) == ["equal-0-w-0"]
    assert "equal-1" not in aside(line)


def test_a_gang_with_a_placed_pod_waits_in_no_line(line: SchedulerHarness) -> None:
    """Its next pod takes a turn of its own."""
    line.see(builders.make_pod_group("elastic", 1, phase="Running"))
    line.see(builders.make_pod("elastic-w-9", "elastic", cpu="0", node="n1", phase="Running"))
    line.see(*gang("elastic", "2", 1))
    line.session()
    assert "elastic" in aside(line)
    free(line, "runs-0", "4")
    assert "elastic" not in aside(line)


def test_equal_gangs_are_nominated_in_one_session_to_room_that_is_being_freed(
    line: SchedulerHarness,
) -> None:
    ending = builders.make_pod(
        "runs-0", "runs", cpu="4", node="n1", phase="Running", deleting=builders.NOON, version=2
    )
    line.see(ending)
    explained = line.session().explanations
    tiers = {key.partition("/")[2]: each.tier for key, each in explained.items() if each}
    assert tiers["equal-0"] == tiers["equal-1"] == "releasing"
    assert tiers.get("equal-2", "resources") == "resources"


@pytest.mark.parametrize("cpus", [("500m", "3"), ("900m", "900m", "2")])
def test_a_gang_of_several_classes_and_one_role_is_equal_to_no_other(
    harness: SchedulerHarness, cpus: tuple[str, ...]
) -> None:
    """Pods without a task name have one role, such as a driver and its executors. The gang waits
    for room for its largest pod alone."""
    pods = [builders.make_pod(f"app-{at}", "app", cpu=cpu) for at, cpu in enumerate(cpus)]
    harness.see(builders.make_pod_group("app", len(pods)), *pods)
    harness.session()
    assert "app" in aside(harness)
    harness.lose(builders.make_pod("runs-0", "runs", cpu="3", node="n1", phase="Running"))
    harness.lose(*gang("small", "1"))
    assert bound(harness.session()) == [pod.metadata.name for pod in pods]


def test_gangs_with_different_time_limits_are_not_equal_beside_a_reservation() -> None:
    """Only the second gang ends before the period begins, so the first one holds up no other."""
    nodes = [builders.make_node(name, cpu="2") for name in ("n1", "n2")]
    starts = builders.NOON + timedelta(minutes=10)
    made = SchedulerHarness()
    made.see(builders.make_queue(), *nodes)
    made.see(builders.make_reservation("r", starts, timedelta(hours=1), "n1"))
    made.see(builders.make_pod_group("runs", 1, phase="Running"))
    running = [
        builders.make_pod(f"runs-{at}", "runs", cpu="2", node=f"n{at}", phase="Running")
        for at in (1, 2)
    ]
    made.see(*running)
    made.see(builders.make_pod_group("long", 1), *gang("long", "2", 1))
    short = builders.make_pod_group("short", 1, annotations={keys.RUNNING_ESTIMATE: "5m"})
    made.see(short, *gang("short", "2", 1))
    made.session()
    made.lose(running[0])
    assert bound(made.session()) == ["short-w-0"]


def test_without_the_plugin_gang_a_gang_is_tried_without_room_for_its_minimum() -> None:
    """Its minimum binds nothing then: each pod starts alone."""
    tier = [sessions.plugin(name) for name in ("priority", "predicates")]
    by = msgspec.structs.replace(
        POLICY, configured=sessions.configured(tier, run="enqueue, allocate, backfill")
    )
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1", cpu="2"))
    made.see(builders.make_pod_group("runs", 1, phase="Running"))
    made.see(*gang("runs", "2", 1, node="n1", phase="Running"))
    made.see(builders.make_pod_group("g", 2), *gang("g", "2", 2))
    schedule.run_session(made.cache, builders.NOON, by)
    made.lose(*gang("runs", "2", 1, node="n1", phase="Running"))
    assert bound(schedule.run_session(made.cache, builders.NOON, by)) == ["g-w-0"]


class FailsToOpen:
    """A plugin that fails once ``is_broken`` is set."""

    def __init__(self, name: str) -> None:
        self.is_broken = False
        self._name = name

    def find(self, name: str, opened: Collection[str]) -> interfaces.PluginFactory:
        """The plugins of the registry; the one of this name fails."""
        if self.is_broken and name == self._name:
            return self._fail
        return plugins.find(name, opened)

    def _fail(self, options: configuration.PluginOptions) -> interfaces.Plugin:
        raise RuntimeError("odd")


@pytest.mark.parametrize("phase", ["Inqueue", "Pending"])
def test_a_plugin_that_fails_and_recovers_isolates_no_waiting_gang(
    line: SchedulerHarness, phase: str
) -> None:
    """Without the plugin, jobs have another order, whose positions cannot be compared with those
    of earlier sessions."""
    plugin, failures = FailsToOpen("drf"), plugin_isolation.FailureHistory()
    now = builders.NOON
    for is_broken in (False, True, False):
        plugin.is_broken = is_broken
        for at in range(2 * unschedulable.RETRIED_TOGETHER):
            name = f"more-{plugin.is_broken:d}-{at}-{now.minute}"
            line.see(builders.make_pod_group(name, 1, phase=phase, min_resources={"cpu": "90"}))
            if phase == "Inqueue":
                line.see(*gang(name, "2", 1))
        decided = schedule.run_session(
            line.cache, now, POLICY, find=plugin.find, plugin_failures=failures
        )
        assert bool(decided.failures) is is_broken
        assert len(line.cache.quarantine) == 0
        now += plugin_isolation.RETRY_AFTER if is_broken else timedelta(seconds=1)
    free(line, "runs-0", "4")
    assert bound(line.session(now)) == ["equal-0-w-0", "equal-1-w-0"]


def test_equal_gangs_behind_one_that_its_queue_refuses_are_explained_soon() -> None:
    """Nodes have room for them now, so their last explanation is wrong."""
    tier = [sessions.plugin(name) for name in ("gang", "predicates", "capacity")]
    by = msgspec.structs.replace(
        POLICY, configured=sessions.configured(tier, run="enqueue, allocate, backfill")
    )
    made = SchedulerHarness()
    made.see(sessions.queue("small", capability={"cpu": "2"}), builders.make_queue())
    made.see(builders.make_node("n1", cpu="3"))
    made.see(builders.make_pod_group("runs", 1, phase="Running"))
    made.see(*gang("runs", "2", 1, node="n1", phase="Running"))
    made.see(builders.make_pod_group("stays", 1, queue="small", phase="Running"))
    made.see(*gang("stays", "1", 1, node="n1", phase="Running"))
    for at in range(3):
        made.see(builders.make_pod_group(f"g{at}", 1, queue="small"), *gang(f"g{at}", "2", 1))
    schedule.run_session(made.cache, builders.NOON, by)
    made.lose(*gang("runs", "2", 1, node="n1", phase="Running"))
    made.lose(builders.make_pod_group("runs", 1, phase="Running"))
    first = schedule.run_session(made.cache, builders.NOON, by)
    assert first.wake_at == builders.NOON + unschedulable.RETRY_INTERVAL
    later = schedule.run_session(made.cache, first.wake_at, by)
    by_share = {key for key, each in later.explanations.items() if each and each.tier == "share"}
    assert by_share == {"default/g0", "default/g1", "default/g2"}


def test_a_gang_is_nominated_to_the_room_of_a_pod_that_an_earlier_session_evicted() -> None:
    """A session evicts a partial gang after it has chosen which gangs to skip. A gang that comes
    later must not take a part of the room."""
    made = SchedulerHarness()
    made.see(builders.make_queue(), builders.make_node("n1", cpu="4"))
    made.see(builders.make_pod_group("part", 2), *gang("part", "2"))
    made.session()
    made.answer("refused", "part-w-1")
    made.see(builders.make_pod("part-w-0", "part", cpu="2", node="n1", phase="Running", version=2))
    made.see(builders.make_pod("other-0", cpu="1", node="n1", scheduler="other", phase="Running"))
    made.see(builders.make_pod_group("big", 1), *gang("big", "3", 1))
    now = builders.NOON
    made.session(now)
    now += partial_gangs.RELEASE_AFTER
    evicted = [each.pod for one in made.session(now).decisions for each in one.evictions]
    assert evicted == ["part-w-0"]
    made.see(builders.make_pod_group("late", 1), *gang("late", "1", 1))
    decided = made.session(now)
    assert bound(decided) == []
    explained = decided.explanations["default/big"]
    assert explained is not None
    assert explained.tier == "releasing"

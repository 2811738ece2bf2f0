"""Rules that depend on time: a session in which a time is not reached requests another one at
exactly that time.

Each rule is tested at noon, a microsecond before the requested time, and at that time.
"""

import ast
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from services.scheduler.tests import test_deviceshare
from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.test_engine import batch, synced_engine
from stromboli.scheduler import engine
from stromboli.scheduler.core import actions, schedule, simulate
from stromboli.scheduler.core import policy as policies
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import external_calls, plugin_isolation, session_inputs
from stromboli.scheduler.core.plugins.extender import extender
from stromboli.shared import cluster_clock, keys
from stromboli.shared.api import core, meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

TICK = timedelta.resolution
ONE, QUEUE = builders.make_node("n1", cpu="1"), builders.make_queue()
LOW, HIGH = builders.make_priority_class("low", 10), builders.make_priority_class("high", 1000)


class Rule(msgspec.Struct, frozen=True):
    """A rule that answers otherwise ``after`` noon. ``memory``: what sessions remember by noon."""

    name: str
    after: timedelta
    objects: tuple[meta.Object, ...]
    tiers: Sequence[sessions.Tier]
    run: str
    memory: Mapping[str, str] = {}
    usage: Mapping[str, cluster_objects.NodeUsage] = {}

    def decided(self, at: datetime) -> tuple[list[object], datetime | None]:
        """The decisions of a session at this time, and the time at which it requests
        the next one.
        """
        cluster = sessions.given([QUEUE, *self.objects], at, self.memory)
        cluster = msgspec.structs.replace(cluster, usage=self.usage)
        closed = simulate.run(sessions.configured(*self.tiers, run=self.run), cluster)
        decisions = closed.decisions
        evicted = [eviction.task for eviction in decisions.evictions]
        return [dict(decisions.binds), evicted, decisions.admitted], closed.wake_at


def large(name: str = "large", **notes: str) -> meta.Object:
    return builders.make_pod_group(
        name, phase="Pending", min_resources={"cpu": "99"}, annotations=notes
    )


def cooling() -> tuple[meta.Object, ...]:
    scheduled = core.Condition(
        type="PodScheduled", status="True", last_transition_time=builders.NOON
    )
    old = builders.make_pod(
        "old", "low", cpu="1", node="n1", phase="Running", labels={keys.COOLDOWN_TIME: "10m"}
    )
    status = msgspec.structs.replace(old.status, conditions=(scheduled,))
    return (
        builders.make_pod_group("low", 0, priority_class="low", phase="Running"),
        msgspec.structs.replace(old, status=status),
        builders.make_pod_group("high", priority_class="high"),
        builders.make_pod("new", "high", cpu="1"),
        LOW,
        HIGH,
        ONE,
    )


def zone(hours: str, period: str = "1m") -> list[sessions.Tier]:
    arguments = {"tdm.revocable-zone.z": hours, "tdm.evict.period": period}
    return [[*default_sessions.TIER, sessions.plugin("tdm", arguments)]]


def zoned(*, is_running: bool, pods: int = 1) -> tuple[meta.Object, ...]:
    node = builders.make_node("n1", labels={keys.REVOCABLE_ZONE: "z"})
    revocable = {keys.REVOCABLE_ZONE: "*"}
    on = "n1" if is_running else ""
    return (node, *sessions.gang("g", "default", pods, node=on, annotations=revocable))


def reserved() -> tuple[Mapping[str, str], tuple[meta.Object, ...]]:
    """Room is reserved for a gang that may start and whose second pod is not created yet."""
    head = builders.make_pod_group("head", 2, min_resources={"cpu": "1"})
    owner = {"job": head.metadata.key, "uid": head.metadata.uid}
    kept = [{**owner, "start": "2026-01-01T12:00:00Z", "rows": {"n1": {"cpu": 1000}}}]
    pod = builders.make_pod("head-0", "head", cpu="1", memory=None)
    behind = sessions.gang("tail", "default", 1, cpu="1", memory=None)
    memory = {"reservation": msgspec.json.encode(kept).decode()}
    return memory, (ONE, head, pod, *behind)


def strict() -> tuple[meta.Object, ...]:
    queue = sessions.queue("q", dequeue="fifo")
    late = builders.NOON + timedelta(seconds=1)
    small = builders.make_pod_group("small", queue="q", created=late)
    return (
        *(queue, ONE, builders.make_pod_group("big", 2, queue="q")),
        *(builders.make_pod("big-0", "big", cpu="1"), small),
        builders.make_pod("small-0", "small", cpu="1"),
    )


def overtaken() -> tuple[meta.Object, ...]:
    """A job that waits since noon, and one that came later and needs less, with room for one."""
    estimate = {keys.RUNNING_ESTIMATE: "1m"}
    late = builders.NOON + timedelta(seconds=1)
    return (
        ONE,
        *sessions.gang("old", "default", 1, cpu="1", memory=None),
        builders.make_pod_group("small", annotations=estimate, created=late),
        builders.make_pod("small-0", "small", cpu="1", memory=None),
    )


def leveled(**more: str) -> list[sessions.Tier]:
    arguments = {"resource": "cpu", "thresholds": "30m", **more}
    gang = sessions.plugin("gang", enablePreemptable=False)
    order = sessions.plugin("least-attained-service", arguments)
    return [[order, gang, sessions.plugin("predicates")]]


def attained() -> tuple[meta.Object, ...]:
    """A job that runs since noon, and one that waits since then, with room for one."""
    old = builders.make_pod("old-0", "old", cpu="1", memory=None, node="n1", phase="Running")
    status = core.PodStatus(phase="Running", start_time=builders.NOON)
    return (
        ONE,
        builders.make_pod_group("old", phase="Running"),
        msgspec.structs.replace(old, status=status),
        *sessions.gang("new", "default", 1, cpu="1", memory=None),
    )


def locked() -> tuple[meta.Object, ...]:
    lock = {"hamivgpu": builders.NOON.isoformat()}
    node = test_deviceshare.vgpu_node("n1", "A,8000", annotations=lock)
    return (node, *test_deviceshare.gang("g", test_deviceshare.wants(memory=1)))


def busy() -> tuple[Mapping[str, str], tuple[meta.Object, ...]]:
    nodes = [builders.make_node(name, cpu="10") for name in ("n1", "n2")]
    memory = {"rescheduling": builders.NOON.isoformat()}
    return memory, (*nodes, *sessions.gang("g", "default", 2, node="n1"))


SHUFFLED = {
    "n1": cluster_objects.NodeUsage(cpu={"5m": 80.0}, memory={"5m": 10.0}),
    "n2": cluster_objects.NodeUsage(cpu={"5m": 10.0}, memory={"5m": 10.0}),
}
STRATEGY = {
    "name": "lowNodeUtilization",
    "params": {
        "thresholds": {"cpu": 20, "memory": 50},
        "targetThresholds": {"cpu": 50, "memory": 90},
    },
}
SLA = [sessions.plugin("sla", {"sla-waiting-time": "1h"})]
FULL = [sessions.plugin("overcommit")]
RULES = [
    Rule(
        "sla: the default of the plugin",
        timedelta(hours=1),
        (ONE, large()),
        [SLA, FULL],
        "enqueue",
    ),
    Rule(
        "sla: the job's own",
        timedelta(seconds=3),
        (ONE, large(**{"volcano.sh/sla-waiting-time": "3s"})),
        [SLA, FULL],
        "enqueue",
    ),
    Rule(
        "shortest-remaining-service: a job has waited for the limit",
        timedelta(hours=1),
        overtaken(),
        [
            [sessions.plugin("shortest-remaining-service", {"waits-at-most": "1h"})],
            default_sessions.TIER,
        ],
        "allocate",
    ),
    Rule(
        "least-attained-service: a victim reaches the next level",
        timedelta(minutes=30),
        attained(),
        leveled(),
        "preempt",
    ),
    Rule(
        "least-attained-service: a job has waited for the limit",
        timedelta(minutes=20),
        attained(),
        leveled(**{"waits-at-most": "20m"}),
        "preempt",
    ),
    Rule(
        "cdp: a pod has cooled down",
        timedelta(minutes=10),
        cooling(),
        [[*default_sessions.TIER, sessions.plugin("cdp")]],
        "preempt",
    ),
    Rule(
        "tdm: a zone opens",
        timedelta(hours=10),
        zoned(is_running=False),
        zone("22:00-06:00"),
        "allocate",
    ),
    Rule(
        "tdm: a zone that began yesterday closes",
        timedelta(hours=1) + TICK,
        zoned(is_running=True),
        zone("18:00-13:00"),
        "shuffle",
    ),
    Rule(
        "tdm: victims linger for another period",
        timedelta(minutes=4),
        zoned(is_running=True, pods=2),
        zone("22:00-06:00", "5m"),
        "shuffle",
        {"tdm": (builders.NOON - timedelta(minutes=1)).isoformat()},
    ),
    Rule(
        "reservation: the pods of the owner do not come",
        timedelta(minutes=1),
        reserved()[1],
        [[sessions.plugin("reservation"), *default_sessions.TIER]],
        "allocate",
        reserved()[0],
    ),
    Rule(
        "queue-policy: the pods of the head do not come",
        timedelta(minutes=1),
        strict(),
        [[sessions.plugin("queue-policy")], default_sessions.TIER],
        "allocate",
        {
            "queue-policy": msgspec.json.encode(
                {"heads_without_pods": {"q": ("podgroup-default-big", builders.NOON)}}
            ).decode()
        },
    ),
    Rule(
        "deviceshare: a lock is no longer held",
        timedelta(minutes=5),
        locked(),
        [test_deviceshare.tier(NodeLockEnable=True)],
        "allocate",
    ),
    Rule(
        "rescheduling: an interval has passed",
        timedelta(minutes=5),
        busy()[1],
        [[sessions.plugin("rescheduling", {"metricsPeriod": "5m", "strategies": [STRATEGY]})]],
        "shuffle",
        busy()[0],
        SHUFFLED,
    ),
]


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_of_time_is_asked_again_when_its_answer_turns(rule: Rule) -> None:
    at_noon, asked_for = rule.decided(builders.NOON)
    assert asked_for == builders.NOON + rule.after
    before, again = rule.decided(asked_for - TICK)
    assert (before, again) == (at_noon, asked_for)
    then, _ = rule.decided(asked_for)
    assert then != at_noon


def test_what_was_remembered_by_a_clock_that_was_set_back_holds_up_nothing() -> None:
    """A time ahead of now counts as now: an interval is waited for once, not for the whole step."""
    ahead = (builders.NOON + timedelta(days=1)).isoformat()
    for rule in RULES:
        if rule.name.startswith(("tdm: victims", "rescheduling")):
            late = msgspec.structs.replace(rule, memory={next(iter(rule.memory)): ahead})
            _, asked_for = late.decided(builders.NOON)
            assert asked_for == builders.NOON + timedelta(minutes=5)


def test_a_strict_queue_with_fair_share_looks_at_its_order_as_use_decays() -> None:
    notes = {keys.QUEUE_POLICY: "fair-share", keys.SHARE_BY: "namespace"}
    queue = sessions.queue("q", dequeue="fifo", annotations=notes)
    objects = [queue, ONE, *sessions.gang("big", "q", 1, cpu="2")]
    tiers = ([sessions.plugin("queue-policy")], default_sessions.TIER)
    closed = simulate.run(sessions.configured(*tiers), sessions.given(objects))
    assert closed.wake_at == builders.NOON + timedelta(days=1) / 64


def test_an_extender_that_refuses_is_asked_again() -> None:
    """No event reports that its answer changed."""

    def refuse(
        questions: Sequence[external_calls.ExternalRequest],
    ) -> list[external_calls.ExternalResponse]:
        return [external_calls.ExternalResponse('{"status": "not today", "code": 1}')] * len(
            questions
        )

    arguments = {"extender.urlPrefix": "http://e", "extender.predicateVerb": "predicate"}
    tier = [sessions.plugin("extender", arguments), *default_sessions.TIER]
    objects = [ONE, QUEUE, *default_sessions.gang("g", 1, cpu="1")]
    cache = seen(*objects)
    by = policies.Policy(configured=sessions.configured(tier))
    decided = schedule.run_session(
        cache, builders.NOON, by, inputs=session_inputs.SessionInputs(ask=refuse)
    )
    assert decided.wake_at == builders.NOON + extender.RETRY


def test_measurements_are_used_until_they_are_too_old_and_no_longer() -> None:
    """The session without them starts at exactly that time."""
    by = policies.Policy(
        configured=msgspec.structs.replace(
            sessions.configured([*default_sessions.TIER, sessions.plugin("usage")]),
            metrics=configuration.Metrics(address="http://prometheus"),
        )
    )
    full = cluster_objects.NodeUsage(cpu={"10m": 99.0}, memory={"10m": 99.0})
    inputs = session_inputs.SessionInputs(
        measured=cluster_objects.MeasuredUsage(builders.NOON, {"n1": full})
    )
    cache = seen(ONE, QUEUE, *default_sessions.gang("g", 1, cpu="1"))
    first = schedule.run_session(cache, builders.NOON, by, inputs=inputs)
    until = builders.NOON + schedule.MEASUREMENT_MAX_AGE
    assert (first.decisions, first.wake_at) == ((), until)
    assert schedule.run_session(cache, until, by, inputs=inputs).decisions


def test_a_plugin_that_failed_is_tried_again_when_its_time_is_over() -> None:
    cache = seen(ONE, QUEUE, *default_sessions.gang("g", 1, cpu="1"))
    plugin_failures = plugin_isolation.FailureHistory()
    until = builders.NOON + plugin_isolation.RETRY_AFTER
    plugin_failures.out["predicates"] = plugin_isolation.PluginFailure(
        "predicates", "it failed", until, None
    )
    by = policies.Policy()
    first = schedule.run_session(cache, builders.NOON, by, plugin_failures=plugin_failures)
    assert (first.decisions, first.wake_at) == ((), until)
    assert schedule.run_session(cache, until, by, plugin_failures=plugin_failures).decisions


def seen(*objects: meta.Object) -> cluster_cache.ClusterCache:
    cache = cluster_cache.ClusterCache(policies.Policy().scheduler_names)
    for record in topic_log.TopicLog().see(*objects):
        cache.apply(record)
    return cache


class TestEngine:
    """The engine takes a step when a rule is due, by the API server's clock."""

    def test_a_job_that_is_too_large_enters_when_its_waiting_time_is_over(self) -> None:
        made = sla_engine(topic_log.TopicLog())
        first = made.step([], builders.NOON, may_decide=True)
        assert entered(first) == []
        assert first.next_step_s == 3
        early = made.step([], builders.NOON + timedelta(seconds=3) - TICK, may_decide=True)
        assert early.publication is None
        due = made.step([], builders.NOON + timedelta(seconds=3), may_decide=True)
        assert entered(due) == ["default/large"]

    @pytest.mark.parametrize(
        "ahead", [timedelta(hours=1), timedelta(hours=-1), timedelta(hours=-9)]
    )
    def test_waiting_times_are_true_whatever_the_host_clock_shows(self, ahead: timedelta) -> None:
        """A new pod shows the offset of the host's clock."""
        log = topic_log.TopicLog()
        host = builders.NOON + ahead
        made = sla_engine(log, host)
        made.step([batch(*log.see(new_pod("p1", 1)))], host + timedelta(seconds=1), may_decide=True)
        due = host + timedelta(seconds=3)
        assert entered(made.step([], due - TICK, may_decide=True)) == []
        assert entered(made.step([], due, may_decide=True)) == ["default/large"]

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_creation_time_more_than_a_day_away_does_not_move_the_clock(self, sign: int) -> None:
        """Otherwise an object with a time in the far future would end all waiting times."""
        clock = cluster_clock.ClusterClock()
        furthest = sign * cluster_clock.LARGEST_OFFSET
        clock.observe(builders.NOON + furthest + sign * TICK, builders.NOON)
        assert clock.offset == timedelta()
        clock.observe(builders.NOON + furthest, builders.NOON)
        assert clock.offset == furthest

    def test_late_records_do_not_move_the_clock(self) -> None:
        log = topic_log.TopicLog()
        made = sla_engine(log)
        late = builders.NOON + timedelta(seconds=30)
        behind = msgspec.structs.replace(batch(*log.see(new_pod("p1", 1))), caught_up=False)
        made.step([behind], late, may_decide=False)
        step = made.step([], late, may_decide=True)
        assert entered(step) == ["default/large"]

    def test_a_clock_that_is_set_back_starts_a_session(self) -> None:
        """What was due by the old time may never be."""
        made = sla_engine(topic_log.TopicLog())
        assert made.step([], builders.NOON, may_decide=True).publication
        earlier = builders.NOON - timedelta(hours=1)
        assert made.step([], earlier, may_decide=True).publication
        assert made.step([], earlier, may_decide=True).publication is None


def sla_engine(log: topic_log.TopicLog, host: datetime = builders.NOON) -> engine.Engine:
    """It has folded a job that may wait three seconds, created at noon by the API server."""
    group = large(**{"volcano.sh/sla-waiting-time": "3s"})
    made = synced_engine(log, ONE, group, host=host)
    made.reconfigure(sessions.configured([sessions.plugin("sla")], FULL, run="enqueue"))
    return made


def new_pod(name: str, second: int) -> core.Pod:
    return builders.make_pod(
        name, None, node="n1", created=builders.NOON + timedelta(seconds=second)
    )


def entered(step: engine.StepResult) -> list[str]:
    drafts = step.publication.decisions if step.publication else ()
    found = [draft.message for draft in drafts]
    return [
        each.pod_group
        for each in found
        if isinstance(each, messages.StatementDecided) and each.enqueue
    ]


def test_an_offset_follows_the_largest_of_the_last_samples() -> None:
    clock, now = cluster_clock.ClusterClock(), builders.NOON
    clock.observe(now - timedelta(seconds=1.9), now)
    assert clock.of(now) == now, "that is how long a record takes"
    clock.observe(now + timedelta(minutes=5), now)
    clock.observe(now + timedelta(minutes=3), now)
    assert clock.offset == timedelta(minutes=5)
    for _ in range(cluster_clock.SAMPLES):
        clock.observe(now, now)
    assert clock.offset == timedelta(0)


KNOWN = {
    "actions/borrowing.py": "keeps since when nothing was decided; asks for the end of that time",
    "actions/reservation_evictions.py": "asks for the rest soon; the rule asks for all changes",
    "plugins/deviceshare/deviceshare.py": "stamps what it gives",
    "plugins/eviction_guards/eviction_limits.py": "asks for the ends of its windows",
    "plugins/extender/extender.py": "asks again after RETRY",
    "plugins/least_attained_service.py": "asks for the next level; records may be dropped late",
    "plugins/maintenance.py": "asks for the ends of windows; their beginnings only forbid",
    "plugins/queue_policy/queue_policy.py": "keeps since when it waits; asks as use decays",
    "plugins/rescheduling.py": "keeps when it ran last; asks for the next interval",
    "plugins/reservation/reservation.py": "asks for the starts of plans; longer work only waits",
    "plugins/tdm/tdm.py": "asks for the next change of its zones",
    "plugins/usage.py": "estimates for young pods are scores: they forbid nothing",
    "framework/opening.py": "asks for the changes of the rule of reservations",
    "framework/run_times.py": "ends of tasks; plans ask for their starts, orders need room",
    "framework/session.py": "reached itself",
}


def test_rules_ask_whether_a_time_is_reached_and_do_not_compare() -> None:
    """A rule that reads the time otherwise is listed here with what starts the session in which it
    changes.
    """
    root = Path(actions.__file__).parent.parent
    readers = {
        path.relative_to(root).as_posix()
        for folder in ("actions", "plugins", "framework", "advance_reservations")
        for path in (root / folder).rglob("*.py")
        if any(
            isinstance(node, ast.Attribute)
            and node.attr == "now"
            and ast.unparse(node.value) != "given"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert readers == KNOWN.keys()

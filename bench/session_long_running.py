"""Sessions of a long-running scheduler: ``--steady``, ``--minutes`` and ``--victims``.

All objects arrive as records of the log and are materialized into the service's cache.
"""

import collections
import gc
import statistics
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from bench import session_clusters
from stromboli.scheduler.core import actions, plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.config import config_reader
from stromboli.scheduler.core.framework import session_inputs
from stromboli.shared import envelope, process, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

GANG = 8
STEP = timedelta(seconds=0.5)
"""Time between two new gangs."""
WARM_UP = 5
LIVING = 20
"""Number of new gangs that run at a time in ``turnover``: each runs for ten seconds."""
GAUGES_EVERY = timedelta(seconds=1)
"""As in the service."""
PODS_OF_A_VICTIM_GANG = 100
VICTIMS_ON_A_NODE = 4


class LongRunningScheduler:
    """A log, and the cache that the service would build from it."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.policy = policy.Policy(
            configured=config_reader.read_configuration(configuration, actions.NAMES, plugins.NAMES)
        )
        self.now = builders.NOON
        self.log = topic_log.TopicLog()
        self.cache = cluster_cache.ClusterCache(self.policy.scheduler_names)
        self.cache.sessions_may_evict = bool(
            policy.EVICTING_ACTIONS.intersection(self.policy.configured.actions)
        )

    def see(self, *objects: meta.Object) -> None:
        """Append and apply the records that the monitor writes for these objects."""
        self.fold(self.log.see(*objects))

    def fold(self, records: list[envelope.Record]) -> None:
        """Apply new records."""
        for record in records:
            if self.cache.apply(record):
                raise AssertionError(f"{record.key} cannot be read")

    def decide(self, *, with_gauges: bool = False) -> schedule.SessionResult:
        """Run one session without applying its decisions."""
        return schedule.run_session(
            self.cache,
            self.now,
            self.policy,
            inputs=session_inputs.SessionInputs(decision_limit=10**9),
            with_gauges=with_gauges,
        )

    def accept(self, decided: schedule.SessionResult) -> list[envelope.Record]:
        """Apply the published decisions and explanations from the log; return the decisions."""
        records = []
        for statement in decided.decisions:
            draft = envelope.Draft(
                topic=topics.DECISIONS,
                key=statement.pod_group,
                message=statement,
                time=builders.NOON,
            )
            records.append(self.log.append(draft))
        self.fold(records)
        for key, message in decided.explanations.items():
            self.cache.record_explanation(key, message)
        for order in decided.orders:
            self.cache.record_explanation("", order)
        self.cache.finish_session(is_throttled=decided.is_throttled)
        return records

    def execute(self, decided: Sequence[envelope.Record], *changed: meta.Object) -> None:
        """Apply the outcomes of these decisions, which were executed, and the changed objects."""
        for record in decided:
            statement = envelope.decode(record)
            assert isinstance(statement, messages.StatementDecided)
            outcome = messages.DecisionAnswered(
                decision=record.id,
                decision_offset=record.offset,
                pod_group=statement.pod_group,
                enqueue="executed" if statement.enqueue else None,
                tasks=tuple(
                    messages.TaskOutcome(
                        namespace=bind.namespace, pod=bind.pod, uid=bind.uid, result="executed"
                    )
                    for bind in statement.binds
                ),
                unanswered_from=record.offset + 1,
            )
            draft = envelope.Draft(
                topic=topics.OUTCOMES, key=record.id, message=outcome, time=builders.NOON
            )
            self.fold([self.log.append(draft)])
        self.see(*changed)


def steady(
    configuration: dict[str, Any],
    options: session_clusters.Options,
    waiting: int,
    rounds: int,
    *,
    is_starving: bool = False,
) -> dict[str, Any]:
    """Time from the last record of a new gang of 8 pods to its decision, in a full cluster.

    ``waiting``: number of further pending gangs, which fit nowhere; with ``is_starving`` their pods
    would fit on empty nodes. Times are CPU seconds, since a session is one thread without waits.
    The clock advances by ``STEP`` from one gang to the next, so that rounds include what sessions
    do at intervals.
    """
    life, running = _in_full_cluster(configuration, options)
    for at in range(waiting):
        nodes = 1 if is_starving else 2 + at % 20
        life.see(*_gang(options, f"waits{at:05}", session_clusters.CORES * nodes))
    life.accept(life.decide())
    seconds, wall = [], []
    gc.collect()
    gc.freeze()
    for at in range(WARM_UP + rounds):
        life.now += STEP
        records = life.log.see(*_gang(options, f"new{at:05}", 1))
        began, began_wall = time.process_time(), time.perf_counter()
        life.fold(records)
        decided = life.decide()
        took, took_wall = time.process_time() - began, time.perf_counter() - began_wall
        if at >= WARM_UP:
            seconds.append(took)
            wall.append(took_wall)
        assert sum(len(each.binds) for each in decided.decisions) == GANG
        life.accept(decided)
    return {
        "nodes": options.nodes,
        "running": running,
        "waiting_gangs": waiting,
        "is_starving": is_starving,
        "event_to_decision_ms_p50": _ms(statistics.median(wall)),
        "event_to_decision_cpu_ms_p50": _ms(statistics.median(seconds)),
        "event_to_decision_cpu_ms_p99": _ms(sorted(seconds)[len(seconds) * 99 // 100]),
        "event_to_decision_cpu_ms_max": _ms(max(seconds)),
        "rounds": [_ms(each) for each in seconds],
    }


def turnover(
    configuration: dict[str, Any], options: session_clusters.Options, minutes: float
) -> dict[str, Any]:
    """Like ``steady``, while gangs come and go for ``minutes`` of the scheduler's clock.

    Every ``STEP`` a gang arrives, is decided, is executed and runs, and the oldest of ``LIVING``
    such gangs is deleted; each of these changes starts a session, as in the service. ``decision``:
    from the last record of a new gang to its decision. ``others``: all other sessions. Times are
    CPU milliseconds of the thread. Gauges are read once a second, and the garbage collector runs as
    in the service.
    """
    life, running = _in_full_cluster(configuration, options)
    life.accept(life.decide())
    living: collections.deque[list[meta.Object]] = collections.deque()
    decision, wall, others = [], [], []
    gauges_at = life.now
    gc.collect()
    gc.freeze()
    gc.set_threshold(process.ALLOCATIONS_BETWEEN_LOOKS)

    def run(records: list[envelope.Record]) -> tuple[schedule.SessionResult, float, float]:
        nonlocal gauges_at
        is_due = life.now - gauges_at >= GAUGES_EVERY
        gauges_at = life.now if is_due else gauges_at
        began, began_wall = time.thread_time(), time.perf_counter()
        life.fold(records)
        decided = life.decide(with_gauges=is_due)
        return decided, time.thread_time() - began, time.perf_counter() - began_wall

    rounds = round(timedelta(minutes=minutes) / STEP)
    began_all = time.perf_counter()
    for at in range(WARM_UP + rounds):
        life.now += STEP
        gang = _gang(options, f"new{at:05}", 1)
        decided, took, took_wall = run(life.log.see(*gang))
        if at >= WARM_UP:
            decision.append(took)
            wall.append(took_wall)
        (statement,) = decided.decisions
        nodes = {bind.pod: bind.node for bind in statement.binds}
        assert len(nodes) == GANG
        now_running = [_started(each, nodes) for each in gang]
        life.execute(life.accept(decided), *now_running)
        living.append(now_running)
        gone = living.popleft() if len(living) > LIVING else []
        for changes in ([], life.log.lose(*reversed(gone))):
            decided, took, _ = run(changes)
            others.append(took)
            life.accept(decided)
    return {
        "nodes": options.nodes,
        "running": running,
        "minutes": minutes,
        "gangs": len(decision),
        "seconds": round(time.perf_counter() - began_all, 1),
        "decision_cpu_ms": _quantiles(decision),
        "decision_wall_ms": _quantiles(wall),
        "others_cpu_ms": _quantiles(others),
        "rounds": [_ms(each) for each in decision],
    }


def victims(nodes: int, count: int, action: str, rounds: int) -> dict[str, Any]:
    """Time of a session in a full cluster with a gang that needs the eviction of ``count`` pods.

    Each node has four pods of 8 cores. They have a lower priority (preempt), or belong to a queue
    that holds everything and deserves half (reclaim).
    """
    plugins_of = [{"name": name} for name in ("priority", "gang", "conformance")]
    others = ("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack")
    life = LongRunningScheduler(
        {
            "actions": f"enqueue, allocate, {action}, backfill",
            "tiers": [{"plugins": plugins_of}, {"plugins": [{"name": name} for name in others]}],
        }
    )
    cores = session_clusters.CORES // VICTIMS_ON_A_NODE
    size = PODS_OF_A_VICTIM_GANG
    life.see(*(builders.make_node(f"n{at:06}", cpu=32, memory="256Gi") for at in range(nodes)))
    life.see(builders.make_queue("low"), builders.make_queue("high"))
    life.see(builders.make_priority_class("high", 1000))
    for at in range(nodes * VICTIMS_ON_A_NODE):
        group = f"low{at // size:05}"
        if at % size == 0:
            life.see(builders.make_pod_group(group, 1, queue="low", phase="Running"))
        pod = builders.make_pod(
            f"{group}-w-{at % size}",
            group,
            cpu=cores,
            memory="8Gi",
            node=f"n{at % nodes:06}",
            phase="Running",
        )
        life.see(pod)
    life.accept(life.decide())
    queue = "high" if action == "reclaim" else "low"
    life.see(
        builders.make_pod_group(
            "new", count, queue=queue, priority_class="high", min_resources={"cpu": cores * count}
        ),
        *(
            builders.make_pod(f"new-w-{at}", "new", cpu=cores, memory="8Gi", priority=1000)
            for at in range(count)
        ),
    )
    seconds, wall, evicted = [], [], 0
    for _ in range(rounds):
        began, began_wall = time.process_time(), time.perf_counter()
        decided = life.decide()
        seconds.append(time.process_time() - began)
        wall.append(time.perf_counter() - began_wall)
        evicted = sum(len(each.evictions) for each in decided.decisions)
    return {
        "action": action,
        "nodes": nodes,
        "victims": evicted,
        "seconds": round(min(wall), 4),
        "cpu_seconds": round(min(seconds), 4),
        "rounds": [round(each, 4) for each in seconds],
    }


def _in_full_cluster(
    configuration: dict[str, Any], options: session_clusters.Options
) -> tuple[LongRunningScheduler, int]:
    """A scheduler that has read a cluster whose gangs all run, and the number of running pods."""
    life = LongRunningScheduler(configuration)
    cluster = session_clusters.build_cluster(options)
    names = [node.metadata.name for node in cluster.nodes]
    life.see(*cluster.nodes, *cluster.queues, *map(_running_group, cluster.pod_groups))
    life.see(*(_running(pod, names[at % len(names)]) for at, pod in enumerate(cluster.pods)))
    return life, len(cluster.pods)


def _started(obj: meta.Object, nodes: dict[str, str]) -> meta.Object:
    """The next version of a gang's PodGroup or pod: it runs."""
    metadata = msgspec.structs.replace(obj.metadata, resource_version="2")
    obj = msgspec.structs.replace(obj, metadata=metadata)
    if metadata.name in nodes:
        return _running(obj, nodes[metadata.name])
    return _running_group(obj)


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        **{
            name: _ms(ordered[min(int(len(ordered) * part), len(ordered) - 1)])
            for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999))
        },
        "max": _ms(ordered[-1]),
    }


def _gang(options: session_clusters.Options, name: str, cores: int) -> list[meta.Object]:
    wanted: builders.Resources = {"cpu": cores * GANG, "memory": f"{GANG}Gi"}
    made = (
        builders.make_pod(f"{name}-w-{at}", name, cpu=cores, memory="1Gi") for at in range(GANG)
    )
    pods = (session_clusters.as_served(options, pod) for pod in made)
    return [builders.make_pod_group(name, GANG, queue="q0", min_resources=wanted), *pods]


def _running_group(group: Any) -> meta.Object:
    status = msgspec.structs.replace(group.status, phase="Running")
    obj: meta.Object = msgspec.structs.replace(group, status=status)
    return obj


def _running(pod: Any, node: str) -> meta.Object:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    status = msgspec.structs.replace(pod.status, phase="Running")
    obj: meta.Object = msgspec.structs.replace(pod, spec=spec, status=status)
    return obj


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)

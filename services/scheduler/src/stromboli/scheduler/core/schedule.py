"""One session of the service: a pure function of the cache, the time, the policy and a seed.

The cache is not changed: decisions enter it when the log has them. The same input gives the same
session byte for byte, whatever the order in which the cache was folded.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core import explain, plugins, policy, simulate
from stromboli.scheduler.core.cache import (
    assumptions,
    cluster_cache,
    partial_gangs,
    unschedulable,
)
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import (
    external_calls,
    opening,
    plugin_isolation,
    session_inputs,
    timing,
)
from stromboli.scheduler.core.framework import session as framework
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import topics
from stromboli.shared.messages import scheduling as messages

CREATION_GRACE = timedelta(seconds=10)
"""How young a PodGroup may be and lack pods without a word: they are made within a second, and an
explanation for each new gang would cost records, conditions and Events for nothing."""
MAX_ATTEMPTS = 16
"""Each leaves out one more of the objects that a session failed on."""
MEASUREMENT_MAX_AGE = timedelta(minutes=5)
"""How old measurements of nodes may be: what is older says nothing about now."""


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a session came to.

    ``decisions``: one statement a gang, in the order in which gangs were decided. ``explanations``
    and ``orders``: only what differs from what stands on the topic; None says that a gang no longer
    waits. ``record`` is there if anything was decided or is to be remembered. ``cause``: id of the
    record that called for the session. ``is_throttled``: what is in flight kept it from deciding
    more. ``complaints``: what went wrong without stopping anything.
    ``gauges``: what plugins tell for dashboards, None if they were not asked.
    ``failures``: plugin -> why the session went on without it, or holds gangs back for it.
    ``wake_at``: when another may decide otherwise although nothing happened.
    """

    decisions: tuple[messages.StatementDecided, ...]
    explanations: dict[str, messages.PodGroupExplained | None]
    orders: tuple[messages.QueueOrdered, ...]
    record: messages.SessionRecorded | None
    cause: str
    is_throttled: bool
    complaints: tuple[str, ...] = ()
    failures: Mapping[str, str] = {}
    gauges: tuple[extension_points.Gauge, ...] | None = None
    wake_at: datetime | None = None


def run_session(
    cache: cluster_cache.ClusterCache,
    now: datetime,
    by: policy.Policy,
    seed: int = 0,
    given: session_inputs.SessionInputs = session_inputs.NO_INPUTS,
    find: opening.FindPlugin = plugins.find,
    plugin_failures: plugin_isolation.FailureHistory | None = None,
    watched: Callable[
        [plugin_isolation.Attempt], framework.Session
    ] = plugin_isolation.run_unwatched,
    timed: timing.Timed = timing.no_timing,
    *,
    with_gauges: bool = False,
) -> SessionResult:
    """Decide on all that waits. ``find``, ``troubles``, ``watched``: the plugins that there are,
    those that have failed lately, and who stops one that does not answer. ``timed``: who measures.
    ``with_gauges``: ask plugins for theirs, which costs O(queues).

    What one object triggers is isolated (see ``quarantine``). Raises InvariantError for what no
    object can be blamed for."""
    for _ in range(MAX_ATTEMPTS):
        try:
            return _attempt(
                cache, now, by, seed, given, find, plugin_failures, watched, timed, with_gauges
            )
        except Exception as error:
            cache.isolate(error)
    raise cache.quarantine.broken(f"{MAX_ATTEMPTS} sessions failed", RuntimeError("give up"))


def _attempt(
    cache: cluster_cache.ClusterCache,
    now: datetime,
    by: policy.Policy,
    seed: int,
    given: session_inputs.SessionInputs,
    find: opening.FindPlugin,
    plugin_failures: plugin_isolation.FailureHistory | None,
    watched: Callable[[plugin_isolation.Attempt], framework.Session],
    timed: timing.Timed,
    with_gauges: bool,
) -> SessionResult:
    """One try; an error leaves the world as it may be."""
    decision_limit = given.decision_limit
    if decision_limit is None:
        decision_limit = cache.in_flight_limit.limit(by.max_in_flight) - cache.unanswered()
    measured, complaints = _usable_measurements(given.measured, now, by.configured)
    usage = {} if measured is None else measured.nodes
    seen = cluster_objects.Cluster(now=now, memory=cache.memory, usage=usage)
    cache.unschedulable_gangs.skip_unschedulable(cache.world, by.configured, now)

    def open_with(how: configuration.Configuration, which: opening.FindPlugin) -> framework.Session:
        calls = external_calls.ExternalCalls(given.ask)
        return opening.open_on_model(
            cache.world,
            how,
            seen,
            which,
            seed=seed,
            decision_limit=decision_limit,
            calls=calls,
            timed=timed,
        )

    said = explain.ExplanationChanges({}, (), is_throttled=False)
    gauges: tuple[extension_points.Gauge, ...] | None = None
    blocking_classes: unschedulable.BlockingClasses = {}

    def act(opened: framework.Session) -> None:
        # What is told asks plugins, too: one that fails over it has failed like any other.
        nonlocal said, gauges, blocking_classes
        partial = partial_gangs.release_partial_gangs(opened, cache.assumed.partial_starts)
        simulate.run_actions(opened)
        said = explain.explain_waiting(cache, opened, CREATION_GRACE, partial)
        gauges = opened.gauges() if with_gauges else None
        blocking_classes = unschedulable.find_unschedulable(opened)

    known = plugin_isolation.FailureHistory() if plugin_failures is None else plugin_failures
    closed = plugin_isolation.run_isolated(by.configured, open_with, act, find, now, known, watched)
    closed.complaints.extend([*complaints, *cache.quarantine.complaints()])
    if measured is not None:
        closed.request_session_at(measured.at + MEASUREMENT_MAX_AGE)
    cache.unschedulable_gangs.note(closed, blocking_classes)
    kept = session_inputs.encode_inputs(
        decision_limit, closed.outside, measured, known, cache.measured_at
    )
    decided = _session_result(cache, closed, said, by.configured, kept, known)
    closed.rollback()
    return msgspec.structs.replace(decided, gauges=gauges)


def _usable_measurements(
    newest: cluster_objects.MeasuredUsage | None, now: datetime, by: configuration.Configuration
) -> tuple[cluster_objects.MeasuredUsage | None, list[str]]:
    """Measurements that may be used, and what is to be said where there ought to be some."""
    if by.metrics is None:
        return None, []
    if newest is None:
        return None, [f"metrics: nothing was measured yet by {by.metrics.address}: not used"]
    if now - newest.at >= MEASUREMENT_MAX_AGE:
        text = f"metrics: what {by.metrics.address} measured is of {newest.at.isoformat()}: "
        return None, [f"{text}older than {MEASUREMENT_MAX_AGE}, not used"]
    return newest, []


def _session_result(
    cache: cluster_cache.ClusterCache,
    closed: framework.Session,
    said: explain.ExplanationChanges,
    by: configuration.Configuration,
    kept: dict[str, msgspec.Raw],
    plugin_failures: plugin_isolation.FailureHistory,
) -> SessionResult:
    number = cache.sessions + 1
    decisions = tuple(_statements(closed, number))
    memory = {**cache.memory, **closed.remember}
    record = None
    if decisions or memory != cache.memory or cache.assumed.partial_starts:
        unconfirmed_from, outcomes_from = cache.restart_from()
        record = messages.SessionRecorded(
            session=number,
            offsets=dict(sorted(cache.offsets.items())),
            now=closed.now,
            configuration=by.digest,
            seed=closed.seed,
            unconfirmed_from=unconfirmed_from,
            outcomes_from=outcomes_from,
            epochs_seen=cache.epochs_before(unconfirmed_from, outcomes_from),
            topic_ids={
                topic.name: cache.topic_ids[topic.name]
                for topic in (topics.DECISIONS, topics.OUTCOMES)
                if topic.name in cache.topic_ids
            },
            answers=kept,
            memory=memory,
        )
    return SessionResult(
        decisions=decisions,
        explanations=said.explanations,
        orders=said.orders,
        record=record,
        cause=cache.session_cause,
        is_throttled=said.is_throttled,
        complaints=tuple(closed.complaints),
        failures=plugin_failures.failures(),
        wake_at=min(
            (at for at in (closed.wake_at, plugin_failures.until) if at is not None), default=None
        ),
    )


def _statements(closed: framework.Session, number: int) -> Iterator[messages.StatementDecided]:
    """What is decided for each gang; evictions belong to the gang that they make room for."""
    decided = closed.decisions
    binds: dict[str, list[messages.Bind]] = {}
    evictions: dict[str, list[messages.Eviction]] = {}
    for key, node in decided.binds.items():
        task = closed.world.tasks[key]
        binds.setdefault(task.job, []).append(_bind(closed, task, node))
    for each in decided.evictions:
        task = closed.world.tasks[each.task]
        evictions.setdefault(each.job or task.job, []).append(
            messages.Eviction(
                namespace=task.namespace,
                pod=task.name,
                uid=task.pod.metadata.uid,
                reason=each.reason,
                notice_s=each.notice.total_seconds(),
            )
        )
    entering = dict.fromkeys(decided.admitted)
    for key in dict.fromkeys([*binds, *evictions, *entering]):
        reasons = dict.fromkeys(each.reason for each in evictions.get(key, ()))
        group = closed.jobs[key].pod_group.metadata
        yield messages.StatementDecided(
            pod_group=key,
            pod_group_uid=group.uid,
            job_uid="" if group.controller is None else group.controller.uid,
            session=number,
            enqueue=key in entering,
            starts_gang=_starts_gang(closed.jobs[key], len(binds.get(key, ()))),
            binds=tuple(binds.get(key, ())),
            evictions=tuple(evictions.get(key, ())),
            reason=next(iter(reasons), "allocate" if key in binds else "enqueue"),
        )


def _starts_gang(job: entities.Job, binds: int) -> bool:
    """Whether these binds of the session are all members of a gang that are on nodes."""
    return binds > 0 and job.min_available > 1 and job.ready == binds


def _bind(closed: framework.Session, task: entities.Task, node: str) -> messages.Bind:
    before = closed.decisions.preparations.get(task.key, ())
    identity = assumptions.identity_of(task.pod)
    return messages.Bind(
        namespace=task.namespace,
        pod=task.name,
        uid=task.pod.metadata.uid,
        node=node,
        task=task.role,
        version=identity.version,
        index=identity.index,
        annotations=closed.decisions.annotations.get(task.key, {}),
        volumes=tuple(each for each in before if isinstance(each, messages.ClaimedVolume)),
        devices=tuple(each for each in before if isinstance(each, messages.ClaimedDevices)),
    )

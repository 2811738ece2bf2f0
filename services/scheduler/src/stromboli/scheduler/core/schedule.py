"""One scheduling session: decides which gangs are admitted, which pods are bound or evicted, and
explains why other gangs wait.

``SessionRun.run`` is the session, as numbered steps. The rules below apply to all of them.

Contract
    A session takes the cache, a time, a policy, a seed and the session inputs (answers and
    measurements from outside). The same arguments give the same result byte for byte, whatever the
    order in which the cache read its topics. ``SessionRecorded`` contains all of them, so a
    recorded session can be replayed from the log (see ``replay``).

    The result is data; nothing is published or executed here. Decisions enter the cache only when
    the service has published them: as records that are read back, or with ``ClusterCache.assume``.

What a session changes
    1. *The cluster model* in the cache is worked on in place, because a copy of 10,000 nodes costs
       more than most sessions. Every change is kept in a list and rolled back in step 7, so that
       the model is unchanged afterwards. If a step raises, the model may be in any state:
       ``isolate`` then builds it again from the snapshots, without the objects that the step failed
       on.
    2. *Unschedulable gangs*: which gangs later sessions may skip. Skipping saves time and changes
       no decision, as a gang is skipped only if another attempt would fail.
    3. *The failure history* of plugins, if one is passed.
    4. *Quarantine*, if an attempt failed.

What it does not change
    Records, offsets, assumed decisions, explanations and the session's memory in the cache.

Complexity
    O(waiting gangs + changes since the last session) without placements; each class of equal tasks
    is filtered and scored once, O(nodes). See ``docs/scheduling.md`` for the order of actions.

A session follows the cycle of Volcano (``pkg/scheduler/scheduler.go``: runOnce; open, actions,
close) with two parts around it: gangs that would fail again are skipped, as in the unschedulable
queue of Kubernetes' scheduler (``pkg/scheduler/backend/queue``), and the result is published as one
statement for each gang.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core import eventual_room, explain, plugins, policy, simulate
from stromboli.scheduler.core.cache import (
    awaited_plans,
    cluster_cache,
    lapsed_admissions,
    node_rejections,
    partial_gangs,
    planned_placement,
    refusal_backoff,
    unschedulable,
)
from stromboli.scheduler.core.cache.in_flight import assumptions
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
from stromboli.shared import errors, topics
from stromboli.shared.messages import data
from stromboli.shared.messages import scheduling as messages

CREATION_GRACE = timedelta(seconds=10)
"""Age until which a PodGroup may lack pods without an explanation. Pods are created within a
second, and an explanation for each new gang would cost records, conditions and Events."""
MAX_ATTEMPTS = 16
"""Maximum number of attempts at one session. Each one leaves out one more object that the session
failed on."""
MEASUREMENT_MAX_AGE = timedelta(minutes=5)
"""Age from which measurements of nodes are not used."""

RunWatched = Callable[[plugin_isolation.Attempt], framework.Session]
"""Runs an attempt and stops a plugin that does not respond."""


class SessionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a session.

    ``decisions``: one statement for each gang, in the order in which they were decided.
    ``explanations`` and ``orders``: only those that differ from the explanations topic; None for a
    gang that no longer waits. ``record``: present if anything was decided or must be stored for
    later sessions. ``cause``: id of the record that triggered the session. ``is_throttled``: the
    in-flight limit kept the session from deciding more. ``complaints``: problems that did not stop
    the session. ``failures``: plugin -> why the session ran without it, or excludes gangs because
    of it. ``gauges``: values that plugins export, None if they were not requested. ``wake_at``:
    time at which another session may decide differently although nothing changed. ``prefetches``:
    node -> data sets that gangs need if they start there.
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
    prefetches: Mapping[str, tuple[data.WantedCopy, ...]] = {}


def run_session(
    cache: cluster_cache.ClusterCache,
    now: datetime,
    by: policy.Policy,
    seed: int = 0,
    inputs: session_inputs.SessionInputs = session_inputs.NO_INPUTS,
    find: opening.FindPlugin = plugins.find,
    plugin_failures: plugin_isolation.FailureHistory | None = None,
    watched: RunWatched = plugin_isolation.run_unwatched,
    timed: timing.Timed = timing.no_timing,
    *,
    with_gauges: bool = False,
) -> SessionResult:
    """Run a session; the module's docstring is its contract.

    ``find``: the plugins that are installed. ``plugin_failures``: recent failures of plugins, which
    the session updates. ``watched``: runs an attempt and stops a plugin that does not respond.
    ``timed``: measures actions and plugins. ``with_gauges``: also return the gauges of plugins,
    O(queues).

    An object that the session fails on is isolated, and the session is attempted again without it
    (see ``quarantine``). Raises InvariantError if no object can be blamed.
    """
    cache.settle()  # as in a replay, which does not run the sessions that left no record
    for _ in range(MAX_ATTEMPTS):
        failures = plugin_isolation.FailureHistory() if plugin_failures is None else plugin_failures
        attempt = SessionRun(cache, now, by, seed, inputs, find, failures, watched, timed)
        try:
            return attempt.run(with_gauges=with_gauges)
        except Exception as error:
            cache.isolate(error)
    raise cache.quarantine.invariant_error(
        f"{MAX_ATTEMPTS} attempts at a session failed", RuntimeError("no attempts left")
    )


class SessionRun:
    """One attempt at a session."""

    def __init__(
        self,
        cache: cluster_cache.ClusterCache,
        now: datetime,
        by: policy.Policy,
        seed: int,
        inputs: session_inputs.SessionInputs,
        find: opening.FindPlugin,
        failures: plugin_isolation.FailureHistory,
        watched: RunWatched,
        timed: timing.Timed,
    ) -> None:
        self._cache = cache
        self._now = now
        self._policy = by
        self._configured = by.configured
        self._seed = seed
        self._inputs = inputs
        self._find = find
        self._failures = failures
        self._watched = watched
        self._timed = timed

    def run(self, *, with_gauges: bool) -> SessionResult:
        """Run the steps. An error leaves the model in any state."""
        cache = self._cache
        # 1. Limit decisions to the binds and evictions that the controller executes in time.
        self._limit = self._decision_limit()
        # 2. Measurements: the measured use of nodes, unless it is too old.
        self._measured, complaints = _usable_measurements(
            self._inputs.measured, self._now, self._configured
        )
        # 3. Skip the gangs that failed before and that no later change can have helped, and keep
        #    no room for admitted gangs that cannot use it.
        cache.unschedulable_gangs.skip_unschedulable(cache.model, self._configured, self._now)
        lapsed_admissions.apply(cache.model, cache.memory)
        # 4. Open the session with its plugins, release partial gangs, skip refused gangs while
        #    they back off and gangs whose plan follows, run the actions, explain what still waits,
        #    close. A plugin that fails is left out, and this step starts again.
        self._with_gauges = with_gauges
        closed = plugin_isolation.run_isolated(
            self._configured,
            self._open,
            self._act,
            self._find,
            self._now,
            self._failures,
            self._watched,
        )
        # 5. Collect complaints, and the time at which the measurements become too old.
        closed.complaints.extend([*complaints, *cache.quarantine.complaints()])
        if self._measured is not None:
            closed.request_session_at(self._measured.at + MEASUREMENT_MAX_AGE)
        # 6. Note which gangs the next sessions may skip.
        cache.unschedulable_gangs.note(closed, self._skippable)
        # 7. Collect statements, and roll back the model: they take effect once they are published.
        statements = tuple(_statements(closed, self._cache.sessions + 1))
        closed.rollback()
        cache.unschedulable_gangs.note_opening(cache.model)
        # 8. Place the planned pods of gangs that were admitted, in a second pass.
        statements = self._with_planned_pods(closed, statements)
        # 9. Collect explanations and the record of the session.
        result = self._result(closed, statements)
        closed.release()
        return result

    # 1. Limit

    def _decision_limit(self) -> int:
        """How many binds and evictions the session may decide; a replay uses the recorded
        number."""
        if self._inputs.decision_limit is not None:
            return self._inputs.decision_limit
        limit = self._cache.in_flight_limit.limit(self._policy.max_in_flight)
        return limit - self._cache.unanswered()

    # 4. Open, release, act, explain

    def _open(
        self, configured: configuration.Configuration, find: opening.FindPlugin
    ) -> framework.Session:
        cache = self._cache
        cache.unschedulable_gangs.follow_plugins(cache.model, self._failures.out)
        return self._open_with(configured, find, self._limit)

    def _open_with(
        self, configured: configuration.Configuration, find: opening.FindPlugin, limit: int
    ) -> framework.Session:
        usage = {} if self._measured is None else self._measured.nodes
        around = cluster_objects.Cluster(now=self._now, memory=self._cache.memory, usage=usage)
        opened = opening.open_on_model(
            self._cache.model,
            configured,
            around,
            find,
            seed=self._seed,
            decision_limit=limit,
            calls=external_calls.ExternalCalls(self._inputs.ask),
            timed=self._timed,
        )
        node_rejections.cool_down(opened, self._cache.rejected_pods)
        return opened

    def _act(self, opened: framework.Session) -> None:
        """Run the actions and compute explanations and gauges, which call plugins too: failures of
        plugins in all of them are handled alike."""
        refusals = self._cache.assumed.refusals
        partial = partial_gangs.release_partial_gangs(opened, refusals)
        backing_off = refusal_backoff.back_off(opened, refusals)
        awaiting_plan = awaited_plans.hold_back(opened, self._cache.plans.awaited)
        simulate.run_actions(opened)
        self._explained = explain.explain_waiting(
            self._cache, opened, CREATION_GRACE, partial, backing_off, awaiting_plan
        )
        obstructed = eventual_room.find_obstructed(opened)
        lapsed_admissions.note(opened, self._explained.explanations, obstructed)
        self._gauges = opened.gauges() if self._with_gauges else None
        self._skippable = unschedulable.find_skippable(opened)

    # 8. Planned pods

    def _with_planned_pods(
        self, first: framework.Session, decided: tuple[messages.StatementDecided, ...]
    ) -> tuple[messages.StatementDecided, ...]:
        """The statements with binds of planned pods added. If the second pass fails, they stay
        unchanged, and the gangs are placed after their pods are created."""
        plans = planned_placement.plans_of(self._cache, self._configured, decided)
        count = sum(len(each.binds) + len(each.evictions) for each in decided)
        if not plans or count >= self._limit:
            return decided
        try:
            return self._place_planned_pods(first, decided, plans, self._limit - count)
        except errors.InvariantError:
            raise
        except Exception as error:  # the model may be in any state
            first.complaints.append(f"planned pods not placed: {type(error).__name__}: {error}")
            self._cache.rebuild()
            return decided

    def _place_planned_pods(
        self,
        first: framework.Session,
        decided: tuple[messages.StatementDecided, ...],
        plans: planned_placement.Plans,
        limit: int,
    ) -> tuple[messages.StatementDecided, ...]:
        planned_placement.apply_decisions(self._cache, decided, plans)
        placed = plugin_isolation.run_isolated(
            self._configured,
            lambda configured, find: self._open_with(configured, find, limit),
            lambda opened: planned_placement.place(opened, first, plans),
            self._find,
            self._now,
            self._failures,
            self._watched,
        )
        binds = planned_placement.bound(self._cache, placed, plans)
        statements = tuple(
            _with_binds(placed, each, binds.get(each.pod_group, ())) for each in decided
        )
        placed.rollback()
        placed.release()
        planned_placement.undo(self._cache, decided, plans)
        return statements

    # 9. Result

    def _result(
        self, closed: framework.Session, decisions: tuple[messages.StatementDecided, ...]
    ) -> SessionResult:
        number = self._cache.sessions + 1
        times = (at for at in (closed.wake_at, self._failures.until) if at is not None)
        return SessionResult(
            decisions=decisions,
            explanations=self._explained.explanations,
            orders=self._explained.orders,
            record=self._record(closed, number, has_decisions=bool(decisions)),
            cause=self._cache.session_cause,
            is_throttled=self._explained.is_throttled,
            complaints=tuple(closed.complaints),
            failures=self._failures.failures(),
            gauges=self._gauges,
            wake_at=min(times, default=None),
            prefetches=closed.decisions.prefetches,
        )

    def _record(
        self, closed: framework.Session, number: int, *, has_decisions: bool
    ) -> messages.SessionRecorded | None:
        """The record of the session's whole input; None if a replay and a restart do not need it,
        because nothing was decided, stored, or learned from outcomes."""
        cache = self._cache
        memory = {**cache.memory, **closed.remember}
        if not (has_decisions or memory != cache.memory or cache.assumed.refusals):
            return None
        unconfirmed_from, outcomes_from = cache.restart_from()
        return messages.SessionRecorded(
            session=number,
            offsets=dict(sorted(cache.offsets.items())),
            now=closed.now,
            configuration=self._configured.digest,
            seed=closed.seed,
            unconfirmed_from=unconfirmed_from,
            outcomes_from=outcomes_from,
            epochs_seen=cache.epochs_before(unconfirmed_from, outcomes_from),
            topic_ids={
                topic.name: cache.topic_ids[topic.name]
                for topic in (topics.DECISIONS, topics.OUTCOMES)
                if topic.name in cache.topic_ids
            },
            answers=session_inputs.encode_inputs(
                self._limit, closed.outside, self._measured, self._failures, cache.measured_at
            ),
            memory=memory,
        )


def _usable_measurements(
    newest: cluster_objects.MeasuredUsage | None, now: datetime, by: configuration.Configuration
) -> tuple[cluster_objects.MeasuredUsage | None, list[str]]:
    """The measurements to use, and complaints if they are configured but missing or too old."""
    if by.metrics is None:
        return None, []
    if newest is None:
        return None, [f"metrics: {by.metrics.address} has returned no measurements yet"]
    if now - newest.at >= MEASUREMENT_MAX_AGE:
        text = (
            f"metrics: the measurements of {by.metrics.address} are from {newest.at.isoformat()}: "
        )
        return None, [f"{text}older than {MEASUREMENT_MAX_AGE}; they are not used"]
    return newest, []


def _statements(closed: framework.Session, number: int) -> Iterator[messages.StatementDecided]:
    """One statement for each gang; evictions belong to the gang for which they free room."""
    decided = closed.decisions
    binds: dict[str, list[messages.Bind]] = {}
    evictions: dict[str, list[messages.Eviction]] = {}
    for key, node in decided.binds.items():
        task = closed.model.tasks[key]
        binds.setdefault(task.job, []).append(_bind(closed, task, node))
    for each in decided.evictions:
        task = closed.model.tasks[each.task]
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


def _with_binds(
    placed: framework.Session,
    statement: messages.StatementDecided,
    binds: tuple[messages.Bind, ...],
) -> messages.StatementDecided:
    """The statement of a gang with the binds of its planned pods."""
    if not binds:
        return statement
    return msgspec.structs.replace(
        statement,
        binds=binds,
        starts_gang=_starts_gang(placed.jobs[statement.pod_group], len(binds)),
        reason="allocate",
    )


def _starts_gang(job: entities.Job, binds: int) -> bool:
    """Whether the gang starts with these binds: no other member is on a node."""
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

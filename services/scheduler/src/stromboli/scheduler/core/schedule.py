"""One session of the service: a pure function of the picture, the time, the policy and a seed.

The picture is not changed: decisions enter it when the log has them. The same input gives the same
session byte for byte, whatever the order in which the picture was folded.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core import explain, plugins, policy, simulate
from stromboli.scheduler.core.cache import assumptions, cluster_cache, unschedulable
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

PATIENCE = timedelta(seconds=10)
"""How young a PodGroup may be and lack pods without a word: they are made within a second, and an
explanation for each new gang would cost records, conditions and Events for nothing."""
MOST_ATTEMPTS = 16
"""Each leaves out one more of the objects that a session failed on."""
MEASURED_FOR = timedelta(minutes=5)
"""How old measurements of nodes may be: what is older says nothing about now."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
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


def decide(
    picture: cluster_cache.ClusterCache,
    now: datetime,
    by: policy.Policy,
    seed: int = 0,
    given: session_inputs.SessionInputs = session_inputs.NOTHING,
    find: opening.FindPlugin = plugins.find,
    troubles: plugin_isolation.Troubles | None = None,
    watched: Callable[[plugin_isolation.Attempt], framework.Session] = plugin_isolation.at_once,
    timed: timing.Timed = timing.untimed,
    *,
    with_gauges: bool = False,
) -> Session:
    """Decide on all that waits. ``find``, ``troubles``, ``watched``: the plugins that there are,
    those that have failed lately, and who stops one that does not answer. ``timed``: who measures.
    ``with_gauges``: ask plugins for theirs, which costs O(queues).

    What one object triggers is isolated (see ``quarantine``). Raises InvariantError for what no
    object can be blamed for."""
    for _ in range(MOST_ATTEMPTS):
        try:
            return _attempted(
                picture, now, by, seed, given, find, troubles, watched, timed, with_gauges
            )
        except Exception as error:
            picture.isolate(error)
    raise picture.quarantine.broken(f"{MOST_ATTEMPTS} sessions failed", RuntimeError("give up"))


def _attempted(
    picture: cluster_cache.ClusterCache,
    now: datetime,
    by: policy.Policy,
    seed: int,
    given: session_inputs.SessionInputs,
    find: opening.FindPlugin,
    troubles: plugin_isolation.Troubles | None,
    watched: Callable[[plugin_isolation.Attempt], framework.Session],
    timed: timing.Timed,
    with_gauges: bool,
) -> Session:
    """One try; an error leaves the world as it may be."""
    allowance = given.allowance
    if allowance is None:
        allowance = picture.in_flight_limit.limit(by.max_unanswered) - picture.unanswered()
    measured, complaints = _measurements(given.measured, now, by.configured)
    usage = {} if measured is None else measured.nodes
    seen = cluster_objects.Cluster(now=now, memory=picture.memory, usage=usage)
    picture.parking.leave_aside(picture.world, by.configured, now)

    def open_with(how: configuration.Configuration, which: opening.FindPlugin) -> framework.Session:
        conversation = external_calls.ExternalCalls(given.ask)
        return opening.open_on(
            picture.world,
            how,
            seen,
            which,
            seed=seed,
            allowance=allowance,
            conversation=conversation,
            timed=timed,
        )

    said = explain.Told({}, (), is_throttled=False)
    gauges: tuple[extension_points.Gauge, ...] | None = None
    vain: unschedulable.Vain = {}

    def act(opened: framework.Session) -> None:
        # What is told asks plugins, too: one that fails over it has failed like any other.
        nonlocal said, gauges, vain
        simulate.act(opened)
        said = explain.told(picture, opened, PATIENCE)
        gauges = opened.gauges() if with_gauges else None
        vain = unschedulable.vain(opened)

    known = plugin_isolation.Troubles() if troubles is None else troubles
    closed = plugin_isolation.held(by.configured, open_with, act, find, now, known, watched)
    closed.complaints.extend([*complaints, *picture.quarantine.complaints()])
    if measured is not None:
        closed.look_again(measured.at + MEASURED_FOR)
    picture.parking.note(closed, vain)
    kept = session_inputs.answers(allowance, closed.outside, measured, known, picture.measured_at)
    decided = _decided(picture, closed, said, by.configured, kept, known)
    closed.rollback()
    return msgspec.structs.replace(decided, gauges=gauges)


def _measurements(
    newest: cluster_objects.Measured | None, now: datetime, by: configuration.Configuration
) -> tuple[cluster_objects.Measured | None, list[str]]:
    """Measurements that may be used, and what is to be said where there ought to be some."""
    if by.metrics is None:
        return None, []
    if newest is None:
        return None, [f"metrics: nothing was measured yet by {by.metrics.address}: not used"]
    if now - newest.at >= MEASURED_FOR:
        text = f"metrics: what {by.metrics.address} measured is of {newest.at.isoformat()}: "
        return None, [f"{text}older than {MEASURED_FOR}, not used"]
    return newest, []


def _decided(
    picture: cluster_cache.ClusterCache,
    closed: framework.Session,
    said: explain.Told,
    by: configuration.Configuration,
    kept: dict[str, msgspec.Raw],
    troubles: plugin_isolation.Troubles,
) -> Session:
    number = picture.sessions + 1
    decisions = tuple(_statements(closed, number))
    memory = {**picture.memory, **closed.remember}
    record = None
    if decisions or memory != picture.memory:
        unconfirmed_from, outcomes_from = picture.restart_from()
        record = messages.SessionRecorded(
            session=number,
            offsets=dict(sorted(picture.offsets.items())),
            now=closed.now,
            configuration=by.digest,
            seed=closed.seed,
            unconfirmed_from=unconfirmed_from,
            outcomes_from=outcomes_from,
            heard=picture.heard_before(unconfirmed_from, outcomes_from),
            identities={
                topic.name: picture.identities[topic.name]
                for topic in (topics.DECISIONS, topics.OUTCOMES)
                if topic.name in picture.identities
            },
            answers=kept,
            memory=memory,
        )
    return Session(
        decisions=decisions,
        explanations=said.explanations,
        orders=said.orders,
        record=record,
        cause=picture.due,
        is_throttled=said.is_throttled,
        complaints=tuple(closed.complaints),
        failures=troubles.failures(),
        wake_at=min(
            (at for at in (closed.wake_at, troubles.until) if at is not None), default=None
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
            binds=tuple(binds.get(key, ())),
            evictions=tuple(evictions.get(key, ())),
            reason=next(iter(reasons), "allocate" if key in binds else "enqueue"),
        )


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

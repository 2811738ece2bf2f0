"""Why a job was pending at a time in the past, from the log.

The cache is built from the records up to that time, as the scheduler had read them, and one session
explains why gangs wait. The session decides with the configuration that was in force, which the
last session record before that time identifies. Records are selected by their own time, so records
that were published in the same moment may be missing.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache, subscriptions
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import opening, session_inputs
from stromboli.scheduler.core.model import entities
from stromboli.scheduler.core.replay import snapshot_history
from stromboli.shared import envelope, queue_order, topics
from stromboli.shared.messages import scheduling as messages

_WITHOUT_ANSWERS = session_inputs.SessionInputs(decision_limit=10**9)
"""Inputs without answers and without a limit: a decision that waited for the in-flight limit does
not explain why a job is pending."""
_OF_SESSIONS = (topics.DECISIONS, topics.OUTCOMES)


class TooEarlyError(Exception):
    """The log begins later. ``oldest``: the first time that can be explained; None if there is
    none."""

    def __init__(self, oldest: datetime | None) -> None:
        since = "it has no complete state yet" if oldest is None else f"it begins at {oldest}"
        super().__init__(f"the log does not reach back to this time: {since}")
        self.oldest = oldest


class UnknownConfigurationError(Exception):
    """The configuration that was in force at that time is not given."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"the configuration in force then has the digest {digest}")
        self.digest = digest


class PastGang(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup at a time. ``phase``: the phase of the PodGroup, empty if it did not exist.
    ``placed``: the number of its ``pods`` that had nodes. ``explained``: why it was pending; None
    if nothing blocked it. ``is_decided``: a session at that time places or admits it. ``in_front``:
    as in ``queue_order.QueueOrders``."""

    pod_group: str
    phase: str = ""
    pods: int = 0
    placed: int = 0
    explained: messages.PodGroupExplained | None = None
    is_decided: bool = False
    in_front: tuple[str, ...] | None = None


def explain_past(
    records: Iterable[envelope.Record],
    at: datetime,
    pod_groups: Iterable[str],
    configurations: Sequence[configuration.Configuration],
    by: policy.Policy,
    find: opening.FindPlugin = plugins.find,
) -> list[PastGang]:
    """The given PodGroups at a time, without PodGroups that did not exist then. ``records``: the
    whole log, with ``cluster.changes`` instead of the topics that it copies.
    ``configurations``: the configurations that may have been in force. Raises TooEarlyError,
    UnknownConfigurationError. O(records)."""
    all_records = list(records)
    past = snapshot_history.read_history(it for it in all_records if it.topic == topics.CHANGES)
    if past.begins is None or at < past.begins:
        raise TooEarlyError(past.begins)
    cache = cluster_cache.ClusterCache(by.scheduler_names)
    inputs, memory = _WITHOUT_ANSWERS, session_inputs.RecordedInputs()
    digest = ""
    for record in (*past.records, *(it for it in all_records if it.topic in _OF_SESSIONS)):
        if record.time > at:
            continue
        cache.apply(record)
        if record.topic == topics.DECISIONS and record.key == messages.SESSION_KEY:
            session = envelope.decode(record)
            if isinstance(session, messages.SessionRecorded):
                digest = session.configuration
                inputs = _inputs(memory, session)
    known = {each.digest: each for each in configurations}
    if digest and digest not in known:
        raise UnknownConfigurationError(digest)
    configured = known[digest] if digest else configurations[0]
    result = _session(cache, at, configured, by, find, inputs)
    orders = queue_order.QueueOrders()
    for order in result.orders:
        orders.put(order)
    jobs = cache.model.jobs
    return [_past_gang(jobs[key], result, orders, key) for key in pod_groups if key in jobs]


def pod_groups_of(records: Iterable[envelope.Record], prefix: str, at: datetime) -> list[str]:
    """The PodGroups whose keys begin with ``prefix`` and that were observed until ``at``, the
    newest last."""
    wanted = f"{topics.POD_GROUPS.name}/{prefix}"
    group_keys: dict[str, None] = {}
    for record in records:
        if record.topic == topics.CHANGES and record.time <= at and record.key.startswith(wanted):
            group_keys.setdefault(record.key.partition("/")[2])
    return list(group_keys)


def _inputs(
    memory: session_inputs.RecordedInputs, session_record: messages.SessionRecorded
) -> session_inputs.SessionInputs:
    """The measurements that the session had. Responses of extenders belong to its own requests
    only."""
    try:
        inputs, _ = memory.inputs_for(session_record.answers)
    except LookupError:
        return _WITHOUT_ANSWERS
    return msgspec.structs.replace(_WITHOUT_ANSWERS, measured=inputs.measured)


def _session(
    cache: cluster_cache.ClusterCache,
    at: datetime,
    configured: configuration.Configuration,
    by: policy.Policy,
    find: opening.FindPlugin,
    inputs: session_inputs.SessionInputs,
) -> schedule.SessionResult:
    cache.advance({topic.name: cache.offsets.get(topic.name, 0) for topic in subscriptions.TOPICS})
    cache.model.set_default_queue(configured.default_queue)
    cache.sessions_may_evict = bool(policy.EVICTING_ACTIONS.intersection(configured.actions))
    how = msgspec.structs.replace(by, configured=configured)
    return schedule.run_session(cache, at, how, inputs=inputs, find=find)


def _past_gang(
    job: entities.Job,
    result: schedule.SessionResult,
    orders: queue_order.QueueOrders,
    key: str,
) -> PastGang:
    explained = result.explanations.get(key)
    return PastGang(
        pod_group=key,
        phase=job.pod_group.status.phase,
        pods=len(job.tasks),
        placed=sum(bool(task.pod.spec.node_name) for task in job.tasks.values()),
        explained=explained,
        is_decided=any(each.pod_group == key for each in result.decisions),
        in_front=None if explained is None else orders.in_front(explained.queue, key),
    )

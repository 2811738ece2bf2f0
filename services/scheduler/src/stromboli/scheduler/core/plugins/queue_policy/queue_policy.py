"""The plugin ``queue-policy``: job order within a queue, and whether jobs may overtake a blocked
first job.

Annotations of a Queue with the prefix ``stromboli.sh/``, or plugin arguments of the same names:

- ``queue-policy``: ``fifo`` by age; ``priority`` by priority, then age; ``fair-share`` between
  owners (see ``fair_shares``), then priority and age; ``sla`` by the end of ``sla-waiting-time``.
  Without it other plugins decide. Jobs below their minimum come before jobs that only grow.
- ``share-by`` (``job``, ``namespace``, ``user``), ``share-weights`` and ``share-half-life``:
  settings of ``fair-share``.

``spec.dequeueStrategy: fifo``: while the queue's first job (*head*) was tried and cannot start, no
other job of the queue is enqueued, placed, or evicts others.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from stromboli.scheduler.core.config import configuration, durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, queue_usage
from stromboli.scheduler.core.plugins.queue_policy import fair_shares
from stromboli.scheduler.core.queue_quota import deadlines, shares
from stromboli.shared import decoding, keys

NAME = "queue-policy"
FIFO, PRIORITY, FAIR_SHARE, SLA = "fifo", "priority", "fair-share", "sla"
POLICIES = (FIFO, PRIORITY, FAIR_SHARE, SLA)
DECAY_STEPS = 64
"""How many times per half-life a strict queue with fair share and waiting jobs is sorted again."""

T = TypeVar("T")


class QueueRules(msgspec.Struct, frozen=True):
    """The rules of a queue. ``policy`` empty: other plugins decide."""

    policy: str = ""
    fair_share: fair_shares.FairShareSettings = fair_shares.FairShareSettings()
    is_strict: bool = False


class PluginState(msgspec.Struct):
    """The state for the next session. ``heads_without_pods``: queue -> uid of the head without
    pods, and since when."""

    used: fair_shares.UsageHistory | None = None
    heads_without_pods: dict[str, tuple[str, datetime]] = {}


class Plugin:
    """Orders jobs within their queues. Abstains for queues without a policy."""

    def __init__(self, options: configuration.PluginOptions) -> None:
        self._options = options

    def open(self, ssn: session.Session) -> None:
        """Read the rules of queues and register the functions that they need. O(queues + jobs of
        queues with ``fair-share``)."""
        self._session = ssn
        self._memory = _decode_state(ssn.cluster.memory.get(NAME, ""))
        self._awaited: dict[str, tuple[str, datetime]] = {}
        self._first_awaited: dict[str, entities.Job] = {}
        self._demands = shares.Demands()
        self._levels: dict[str, float] = {}
        default = _rules(
            _default_annotations(self._options.arguments), QueueRules(), f"plugin {NAME}", ssn
        )
        self._rules = {}
        for name, queue in ssn.queues.items():
            annotations = _queue_annotations(queue)
            rules = _rules(annotations, default, f"Queue {name}", ssn) if annotations else default
            strict = queue.object.spec.dequeue_strategy == FIFO
            if rules.policy or strict:
                self._rules[name] = msgspec.structs.replace(rules, is_strict=strict)
        self._owner_shares = self._open_owner_shares()
        if any(rules.policy for rules in self._rules.values()):
            self._deadlines = deadlines.Deadlines.configured(ssn)
            ssn.add_job_order(self._compare)
        if self._owner_shares:
            ssn.add_job_order_changed(self._share_has_changed)
            ssn.add_event_handler(self._on_allocate, self._on_deallocate)
        if any(rules.is_strict for rules in self._rules.values()):
            ssn.add_job_blocked(self._hold_back_others)

    def close(self, ssn: session.Session) -> None:
        """Store the usage of owners, and heads whose pods are still to be created."""
        pages = {name: page for name, book in self._owner_shares.items() if (page := book.closed())}
        used = fair_shares.UsageHistory(ssn.now, pages) if pages else None
        if used or self._awaited:
            memory = msgspec.json.encode(PluginState(used, self._awaited), order="deterministic")
            ssn.remember[NAME] = memory.decode()

    # Order ----------------------------------------------------------------------------------

    def _compare(self, left: entities.Job, right: entities.Job) -> int:
        rules = self._rules.get(left.queue)
        if rules is None or not rules.policy or left.queue != right.queue:
            return 0
        return (
            left.is_ready - right.is_ready
            or self._by_policy(rules.policy, left, right)
            or _compared((left.created, left.uid), (right.created, right.uid))
        )

    def _by_policy(self, policy: str, left: entities.Job, right: entities.Job) -> int:
        if policy == SLA:
            return self._deadlines.compare(left, right)
        if policy == PRIORITY:
            return right.priority - left.priority
        if policy == FAIR_SHARE:
            levels = self._level(left), self._level(right)
            return _compared(*levels) or right.priority - left.priority
        return 0

    # Fair share -----------------------------------------------------------------------------

    def _open_owner_shares(self) -> dict[str, fair_shares.OwnerShares]:
        used = self._memory.used
        pages = used.queues if used else {}
        passed = max(self._session.now - used.at, timedelta()) if used else timedelta()
        books = {
            name: fair_shares.OwnerShares(self._session, rules.fair_share, pages.get(name), passed)
            for name, rules in self._rules.items()
            if rules.policy == FAIR_SHARE
        }
        if books:
            for job in self._session.jobs.values():
                if job.queue in books:
                    books[job.queue].enter(job)
        return {name: book.opened() for name, book in books.items()}

    def _level(self, job: entities.Job) -> float:
        """Return the level as of the last sort: keys must not change while jobs are sorted."""
        level = self._levels.get(job.key)
        if level is None:
            level = self._levels[job.key] = self._owner_shares[job.queue].level(job)
        return level

    def _share_has_changed(self, job: entities.Job) -> bool:
        if job.queue not in self._owner_shares:
            return False
        before = self._levels.get(job.key)
        level = self._levels[job.key] = self._owner_shares[job.queue].level(job)
        return before is not None and level > before

    def _on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], len(tasks))

    def _on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        self._add_usage(tasks[0], -len(tasks))

    def _add_usage(self, like: entities.Task, times: int) -> None:
        job = self._session.job_of(like)
        if job is not None and job.queue in self._owner_shares:
            self._owner_shares[job.queue].charge(job, self._demands.of(like), times)

    # Strict queues --------------------------------------------------------------------------

    def _hold_back_others(self, job: entities.Job) -> str:
        rules = self._rules.get(job.queue)
        if rules is None or not rules.is_strict:
            return ""
        is_short = not job.is_pending and self._session.job_valid(job) is not None
        if is_short and not self._pods_are_being_created(job):
            return ""
        if rules.policy == FAIR_SHARE and rules.fair_share.uses_history:
            # Past usage decays, so that the order can change without an event.
            step = max(rules.fair_share.half_life / DECAY_STEPS, timedelta(seconds=1))
            self._session.request_session_at(self._session.now + step)
        return "dequeueStrategy fifo"

    def _pods_are_being_created(self, job: entities.Job) -> bool:
        """Return whether the pods of a newly enqueued job are still being created."""
        if job.phase != "Inqueue":
            return False
        before = self._memory.heads_without_pods.get(job.queue, ("", self._session.now))
        since = before[1] if before[0] == job.uid else self._session.now
        since = min(since, self._session.now)  # the clock may have been set back
        first = self._first_awaited.get(job.queue)
        if first is None or self._session.compare_jobs(job, first) < 0:
            self._first_awaited[job.queue] = job
            self._awaited[job.queue] = (job.uid, since)
        return not self._session.reached(since + queue_usage.PODS_EXPECTED_WITHIN)


def _compared(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _decode_state(text: str) -> PluginState:
    try:
        return decoding.from_json(text, PluginState) if text else PluginState()
    except msgspec.DecodeError:
        return PluginState()


# Rules --------------------------------------------------------------------------------------


def _queue_annotations(queue: entities.Queue) -> Mapping[str, str]:
    wanted = (keys.QUEUE_POLICY, keys.SHARE_BY, keys.SHARE_WEIGHTS, keys.SHARE_HALF_LIFE)
    annotations = queue.object.metadata.annotations or {}
    return {key: annotations[key] for key in wanted if key in annotations}


def _default_annotations(arguments: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the arguments in the form of the annotations whose defaults they are."""
    return {f"{keys.PREFIX}{name}": str(value) for name, value in arguments.items()}


def _rules(
    annotations: Mapping[str, str], default: QueueRules, where: str, ssn: session.Session
) -> QueueRules:
    """Return the rules. Values that cannot be read are reported, and the default is used."""

    def read(key: str, reader: Callable[[str], T], otherwise: T) -> T:
        if key not in annotations:
            return otherwise
        try:
            return reader(annotations[key])
        except ValueError as error:
            ssn.complaints.append(f"{where}: {key}: {error}; the default is used")
            return otherwise

    fair_share = fair_shares.FairShareSettings(
        read(keys.SHARE_BY, _one_of(fair_shares.OWNERS), default.fair_share.by),
        read(keys.SHARE_WEIGHTS, weights, default.fair_share.weights),
        read(keys.SHARE_HALF_LIFE, durations.duration, default.fair_share.half_life),
    )
    return QueueRules(read(keys.QUEUE_POLICY, _one_of(POLICIES), default.policy), fair_share)


def _one_of(known: tuple[str, ...]) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in known:
            raise ValueError(f"{text!r} is not one of {', '.join(known)}")
        return text

    return read


def weights(text: str) -> Mapping[str, float]:
    """Parse weights such as ``team-a=3, team-b=0.5``. Raises ValueError with an example."""
    weight_by_name = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, number = part.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not name or not equals or not 0 < weight < float("inf"):
            raise ValueError(f"{part!r} is not a weight above zero: write team-a=3, team-b=1")
        weight_by_name[name] = weight
    return weight_by_name

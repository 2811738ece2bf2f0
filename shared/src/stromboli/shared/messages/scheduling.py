"""Decisions, their outcomes, and explanations of pending PodGroups."""

from typing import Literal

import msgspec

from stromboli.shared.api import resource
from stromboli.shared.api.views.expected_start import StartAnswer
from stromboli.shared.decoding import Instant
from stromboli.shared.messages.base import Message, register


class ClaimedVolume(Message, frozen=True, kw_only=True):
    """A PersistentVolumeClaim of the pod (same namespace) that must be bound before the pod: to
    ``volume`` or, if that is empty, to a volume that its provisioner creates for the node."""

    claim: str
    uid: str
    volume: str = ""


class ClaimedDevices(Message, frozen=True, kw_only=True):
    """A ResourceClaim of the pod (same namespace) that must be reserved for the pod before it is
    bound. ``allocation``: the devices to allocate; None if they are allocated."""

    claim: str
    uid: str
    allocation: resource.Allocation | None = None


class Bind(Message, frozen=True, kw_only=True):
    """Bind one pod to one node. ``version`` (of the job), ``task`` and ``index`` identify the task
    in the job of the statement's ``job_uid``; the uid identifies the pod.

    Without a uid the pod is *planned*: it does not exist, and is created with this node. ``plan``:
    digest of the plan (``batch.plans``) by which it was placed; ``node_uid``: uid of the node.

    ``annotations`` are set on the pod with the bind: the CPUs or devices that are assigned to it.
    ``volumes`` and ``devices`` are prepared before any pod of the statement is bound.
    """

    namespace: str
    pod: str
    uid: str
    node: str
    version: int = 0
    task: str = ""
    index: int = 0
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    volumes: tuple[ClaimedVolume, ...] = ()
    devices: tuple[ClaimedDevices, ...] = ()
    plan: str = ""
    node_uid: str = ""

    @property
    def is_planned(self) -> bool:
        """Whether the decision creates the pod with its node."""
        return not self.uid


class Eviction(Message, frozen=True, kw_only=True):
    """Evict one pod, because of ``reason`` (``preempt``, ``reclaim`` ...).

    ``notice_s``: seconds between the notification of the pod and its deletion.
    """

    namespace: str
    pod: str
    uid: str
    reason: str
    notice_s: float = 0.0


@register("stromboli.scheduling.statement_decided.v1")
class StatementDecided(Message, frozen=True, kw_only=True):
    """The whole statement of one gang in one session (key: the PodGroup). Its ``ce_id`` is the
    decision's id.

    ``enqueue``: the PodGroup is admitted to its queue, so its pods may be created.
    ``starts_gang``: no member of the gang is on a node before these binds. ``job_uid``: uid of the
    PodGroup's owner. ``decision``: empty, or in a repeated publication the decision's id;
    the repetition contains the unfinished part of the statement, and gets its own outcome.
    """

    pod_group: str
    pod_group_uid: str
    session: int
    job_uid: str = ""
    decision: str = ""
    enqueue: bool = False
    starts_gang: bool = False
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    reason: str = ""


SESSION_KEY = "$session"


@register("stromboli.scheduling.session_recorded.v1")
class SessionRecorded(Message, frozen=True, kw_only=True):
    """The complete input of a session (key ``$session``); replaying it gives the same decisions
    byte for byte.

    ``offsets``: topic -> first offset that was not materialized. ``answers``: responses of external
    systems. ``unconfirmed_from``: every decision below this offset is finished: answered and, if
    executed, visible in the pods' snapshot. ``outcomes_from``: all answers to later decisions are
    at or after this offset. A restart that reads from these two offsets restores all in-flight
    decisions. ``epochs_seen``: topic -> the highest epoch accepted before these offsets; without an
    entry the record at the offset was accepted and contains its epoch. ``topic_ids``: topic -> its
    topic id; in a later topic of the same name the offsets are void. ``memory``: state that plugins
    keep for the next session.
    """

    session: int
    offsets: dict[str, int]
    now: Instant
    configuration: str
    seed: int = 0
    unconfirmed_from: int = 0
    outcomes_from: int = 0
    answers: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    memory: dict[str, str] = msgspec.field(default_factory=dict)
    epochs_seen: dict[str, int] = msgspec.field(default_factory=dict)
    topic_ids: dict[str, str] = msgspec.field(default_factory=dict)


Result = Literal["executed", "refused", "expired"]


class TaskOutcome(Message, frozen=True, kw_only=True):
    """The outcome of one bind or eviction. ``created_version``: resourceVersion of the pod that was
    created for a planned bind."""

    namespace: str
    pod: str
    uid: str
    result: Result
    reason: str = ""
    message: str = ""
    created_version: int = 0


class ClaimOutcome(Message, frozen=True, kw_only=True):
    """A ResourceClaim that the decision allocated, and that may be allocated still. ``version``: a
    resourceVersion of the claim that has the allocation, or from after it; a reader that observes
    the claim as not allocated in a later version knows that it was deallocated. 0 for a claim that
    the controller could not read: whether it is allocated is not known."""

    namespace: str
    claim: str
    uid: str
    version: int


@register("stromboli.scheduling.decision_answered.v1")
class DecisionAnswered(Message, frozen=True, kw_only=True):
    """The controller's complete answer to one publication of a decision (key: the decision's id).

    ``decision_offset``: offset of that publication in the topic of decisions. ``enqueued_version``:
    a resourceVersion in which the PodGroup was admitted, if ``enqueue`` was executed; a reader that
    observes it as not admitted in a later version knows that the admission was reverted. ``claims``
    may contain claims of refused binds, if other pods use them.
    ``unanswered_from``: every decision below this offset is answered. ``outcomes_from``: all
    answers to later decisions are at or after this offset of the outcomes topic. A restarting
    scheduler reads from these two offsets, not the whole retention time.
    """

    decision: str
    decision_offset: int
    pod_group: str
    enqueue: Result | None = None
    tasks: tuple[TaskOutcome, ...] = ()
    unanswered_from: int = 0
    outcomes_from: int = 0
    enqueued_version: int = 0
    claims: tuple[ClaimOutcome, ...] = ()


Tier = Literal[
    "invalid",
    "queue-closed",
    "enqueue",
    "gang",
    "resources",
    "predicates",
    "unknown",
    "share",
    "fragmentation",
    "order",
    "releasing",
    "topology",
    "never-fits",
    "refused",
]
"""``share``: the queue has reached its share. ``fragmentation``: the free sum suffices, but no node
has enough. ``order``: a PodGroup ahead in the queue must be placed first. ``releasing``: the
PodGroup is nominated for resources that are being released. ``topology``: no topology domain of an
allowed tier has enough. ``never-fits``: current nodes and limits can never hold it. ``refused``:
the API server rejected the last decisions about it, and it is in backoff.
"""


class NodeRejection(Message, frozen=True, kw_only=True):
    """The number of nodes that were rejected for one reason."""

    nodes: int
    reason: str


class Shortage(Message, frozen=True, kw_only=True):
    """Needed, free and total amount of one resource, in its unit (see
    ``stromboli.shared.formats.units``).

    ``free`` is the sum over all nodes, which shows fragmentation. If the queue is the limit, the
    other fields are its usage, the amount reserved for admitted PodGroups, its deserved share and
    its capability; None means no limit.
    """

    resource: str
    needed: int
    free: int
    total: int
    allocated: int | None = None
    promised: int | None = None
    deserved: int | None = None
    capability: int | None = None


@register("stromboli.scheduling.pod_group_explained.v1")
class PodGroupExplained(Message, frozen=True, kw_only=True):
    """Why a PodGroup is pending (key: the PodGroup); a tombstone once it is not.

    ``tier``: the kind of reason. ``message``: the text of the PodGroup's condition. ``placeable``:
    members that could be placed now. Readers compute the PodGroup's position in the queue from the
    queue's order record.
    """

    pod_group: str
    pod_group_uid: str
    queue: str
    phase: str
    tier: Tier
    message: str
    min_member: int
    members: int
    running: int
    pending: int
    placeable: int
    shortages: tuple[Shortage, ...] = ()
    refusals: tuple[NodeRejection, ...] = ()


@register("stromboli.scheduling.queue_ordered.v1")
class QueueOrdered(Message, frozen=True, kw_only=True):
    """A chunk of the pending PodGroups of a queue, the next one first (key
    ``queue//<name>//<chunk>``). The order of the queue is all its chunks by number."""

    queue: str
    chunk: int = 0
    pod_groups: tuple[str, ...]


def queue_order_key(queue: str, chunk: int = 0) -> str:
    """The key of a chunk of a queue's order. It cannot equal a PodGroup's key, which has no
    ``//``."""
    return f"queue//{queue}//{chunk}"


class ExpectedStart(Message, frozen=True, kw_only=True):
    """When a pending PodGroup is expected to start: 80 % of the simulations are between ``p10`` and
    ``p90``. A time is absent if it is more than 7 days away or the PodGroup never starts."""

    pod_group: str
    answer: StartAnswer
    p10: Instant | None = None
    p50: Instant | None = None
    p90: Instant | None = None


@register("stromboli.scheduling.starts_forecast.v1")
class StartsForecast(Message, frozen=True, kw_only=True):
    """A chunk of the expected starts (key ``forecast//<scope>//<chunk>``).

    ``scope``: ``first`` has the PodGroups that start next; ``all`` has all of them and is published
    less often. If both have a PodGroup, the one with the later ``at`` counts. ``at``: the time of
    the cluster state that was simulated. ``chunks``: the number of chunks of the scope; chunks with
    higher numbers are outdated. ``draws``: simulations with different run times.
    """

    scope: str
    chunk: int
    chunks: int
    at: Instant
    draws: int
    starts: tuple[ExpectedStart, ...]


SESSIONS_KEY = "sessions"


@register("stromboli.scheduling.sessions_measured.v1")
class SessionsMeasured(Message, frozen=True, kw_only=True):
    """The durations of the newest sessions of this scheduler (key ``sessions``), as percentiles by
    nearest rank; published every 30 s at most. ``sessions``: the number of these sessions, at most
    1000."""

    at: Instant
    sessions: int
    p50_s: float
    p99_s: float


def forecast_key(scope: str, chunk: int) -> str:
    """The key of a chunk of the expected starts. It cannot equal a PodGroup's key, which has no
    ``//``."""
    return f"forecast//{scope}//{chunk}"


LEASE_KEY = "$lease"


@register("stromboli.scheduling.lease_renewed.v1")
class LeaseRenewed(Message, frozen=True, kw_only=True):
    """The scheduler renewed its lease (key ``$lease``): it is the leader until ``duration_s``
    seconds pass without a renewal. A record without a holder releases the lease.
    """

    holder: str
    duration_s: float

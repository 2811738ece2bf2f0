"""Decisions, their outcomes, and why PodGroups are pending."""

from typing import Literal

import msgspec

from stromboli.shared.api import resource
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
    """Put one pod on one node. The task is named by the statement's ``job_uid`` and by ``version``
    (of the job), ``task`` and ``index``; the uid names the pod.

    ``annotations`` come to stand on the pod with the bind: which CPUs or devices are meant for it.
    ``volumes`` and ``devices`` are written before any pod of the statement is bound.
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


class Eviction(Message, frozen=True, kw_only=True):
    """Remove one pod, because of ``reason`` (``preempt``, ``reclaim`` ...).

    ``notice_s``: it is told so many seconds before.
    """

    namespace: str
    pod: str
    uid: str
    reason: str
    notice_s: float = 0.0


@register("stromboli.scheduling.statement_decided.v1")
class StatementDecided(Message, frozen=True, kw_only=True):
    """One gang's whole statement in one session (key: the PodGroup). Its ``ce_id`` is the
    decision's
    id.

    ``enqueue``: the PodGroup is admitted to its queue, so its pods may be created. ``job_uid``: uid
    of the PodGroup's owner. ``decision``: empty, or in a repeated publication the decision's id;
    the repetition contains what is still open of the statement, and gets an outcome like any other.
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
    """A session's whole input (key ``$session``): with it the session runs again byte for byte.

    ``offsets``: topic -> first offset not folded. ``answers``: what was asked of the outside.
    ``unconfirmed_from``: every decision below this offset is over: answered, and seen in the pods'
    snapshot if it was carried out. ``outcomes_from``: all answers to decisions from there on stand
    at or after this offset. A restart that folds from these two knows all that is in flight.
    ``heard``: topic -> the highest epoch heard before the one of these two offsets that is of it;
    without an entry the record that stands there was heard, and says it itself.
    ``identities``: topic -> what tells it from a later one of its name, in which these two offsets
    would mean nothing.
    ``memory``: what plugins want to know at the next session.
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
    """The outcome of one bind or eviction."""

    namespace: str
    pod: str
    uid: str
    result: Result
    reason: str = ""
    message: str = ""


@register("stromboli.scheduling.decision_answered.v1")
class DecisionAnswered(Message, frozen=True, kw_only=True):
    """The controller's answer to one publication of a decision (key: the decision's id), whole.

    ``decision_offset``: of that publication, in the topic of decisions.
    ``entered_version``: a resourceVersion of the PodGroup in which it was past its queue's door,
    if ``enqueue`` was executed: who sees it outside in a later one knows that it was taken back.
    ``unanswered_from``: every decision below this offset is answered. ``outcomes_from``: all
    answers to decisions from there on stand at or after this offset of the outcomes topic. A
    restarting scheduler folds from these two, not from two weeks ago.
    """

    decision: str
    decision_offset: int
    pod_group: str
    enqueue: Result | None = None
    tasks: tuple[TaskOutcome, ...] = ()
    unanswered_from: int = 0
    outcomes_from: int = 0
    enqueued_version: int = 0


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
"""``share``: the queue may not hold more now. ``fragmentation``: enough is free in sum, but no node
has it. ``order``: the queue waits for the PodGroup in front. ``releasing``: it is promised what is
being released. ``topology``: no part of the network that is near enough has the room.
``never-fits``: nodes and limits as they are have no room for it, however long it waits.
``refused``: its last decisions were refused, by the API server as a rule, and it backs off."""


class NodeRejection(Message, frozen=True, kw_only=True):
    """How many nodes were rejected for one reason."""

    nodes: int
    reason: str


class Shortage(Message, frozen=True, kw_only=True):
    """Needed, free and total amount of one resource, in its unit (see
    ``stromboli.shared.formats.units``).

    ``free`` is the sum over all nodes: free that is no use for being scattered is visible by it.
    Where the queue is what blocks: what it holds, what those it let in will still take, what it
    deserves and what it may have at most; None where nothing says.
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
    members that could be placed now. Readers compute its position in the queue from the queue's
    order record.
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
    """Key of a chunk of a queue's order; no PodGroup's key has this separator."""
    return f"queue//{queue}//{chunk}"


LEASE_KEY = "$lease"


@register("stromboli.scheduling.lease_renewed.v1")
class LeaseRenewed(Message, frozen=True, kw_only=True):
    """This scheduler acts (key ``$lease``) until it has said nothing for ``lasts_s`` seconds; one
    without a holder has left its place to the next."""

    holder: str
    duration_s: float

"""Assumptions as data: one for each bind, each claim to be written before a bind, each eviction and
the entry of a published decision.

``assumption_states`` has the rules and the table of states.
"""

import enum
from collections.abc import Iterable, Iterator

import msgspec

from stromboli.scheduler.core.cache.in_flight import assumption_states as states
from stromboli.shared import keys
from stromboli.shared.api import core
from stromboli.shared.messages import scheduling

HISTORY_KEPT = 8
"""Number of events that an assumption keeps for error messages."""
Rank = tuple[int, int]
"""Epoch and sequence of a decision's id: later decisions rank higher."""


class Effect(enum.StrEnum):
    """The effect on an object that an assumption expects."""

    BIND = "bind"
    EVICTION = "eviction"
    ENTRY = "entry"
    VOLUME = "volume"
    DEVICES = "devices"

    __hash__ = object.__hash__  # faster than the hash of ``enum``, which runs Python code


Place = tuple[Effect, str]
"""An effect and the key of its object."""


class TaskIdentity(msgspec.Struct, frozen=True):
    """The task that a pod was created for. For a pod without a job, ``job`` is the pod's uid."""

    job: str
    version: int = 0
    task: str = ""
    index: int = 0


class Assumption(msgspec.Struct, eq=False):
    """What one decision assumes about one task, claim or PodGroup.

    ``key``, ``uid``: of the pod, claim or PodGroup; a planned pod has no uid yet. ``bind``: for a
    claim the first bind that needs it. ``is_absent``: no snapshot of the object has been read.
    ``version``: a resourceVersion at which the object has the effect, from the outcome; 0 without
    one.
    """

    decision: "Decision"
    effect: Effect
    key: str
    uid: str
    bind: scheduling.Bind | None = None
    volume: scheduling.ClaimedVolume | None = None
    devices: scheduling.ClaimedDevices | None = None
    eviction: scheduling.Eviction | None = None
    state: states.State = states.State.ASSUMED
    is_absent: bool = True
    version: int = 0
    history: tuple[states.Event, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the assumption holds room, volumes or devices."""
        return self.state in states.OPEN

    @property
    def is_costly(self) -> bool:
        """Whether the controller has work to do for it now.

        Waiting for a volume or for the end of a notice costs the controller nothing.
        """
        if self.state is not states.State.ASSUMED or (self.is_absent and not self.is_planned):
            return False
        if self.eviction is not None:
            return self.eviction.notice_s <= 0
        return self.effect is Effect.BIND and not self.decision.awaits_volumes

    @property
    def is_planned(self) -> bool:
        """Whether this is a bind of a planned pod."""
        return self.effect is Effect.BIND and self.bind is not None and self.bind.is_planned

    def is_of(self, pod: core.Pod) -> bool:
        """Whether this is about this pod, and not about another one of the same name. A planned pod
        is created with its node, so a pod without it is another one, such as a copy."""
        if self.bind is not None and self.bind.is_planned:
            is_marked = pod.metadata.annotation(keys.DECISION) == self.decision.id
            return is_marked and pod.spec.node_name == self.bind.node
        return self.uid == pod.metadata.uid

    def apply(self, event: states.Event) -> None:
        """Change the state. Raises IllegalTransitionError."""
        key = f"{self.decision.id} {self.effect.value} {self.key}"
        self.state = states.after(key, self.state, event, self.history)
        self.history = (*self.history[1 - HISTORY_KEPT :], event)


class Decision(msgspec.Struct, eq=False):
    """The newest publication of a statement, and its open assumptions.

    ``offset``: of that publication. ``is_answered``: its outcome has been read.
    ``awaits_volumes``: its binds wait for volumes, which takes minutes.
    """

    id: str
    offset: int
    statement: scheduling.StatementDecided
    awaits_volumes: bool
    is_answered: bool = False
    open: dict[Place, Assumption] = msgspec.field(default_factory=dict)

    @property
    def longest_notice_s(self) -> float:
        """The longest eviction notice of its pods in seconds; its execution takes that long."""
        return max((each.notice_s for each in self.statement.evictions), default=0.0)

    def remaining(self) -> scheduling.StatementDecided:
        """The statement reduced to its open parts, to be republished under its id. It contains a
        bind even if only claims of the bind are open."""
        of = self.statement
        return msgspec.structs.replace(
            of,
            decision=self.id,
            enqueue=(Effect.ENTRY, of.pod_group) in self.open,
            binds=tuple(it for it in of.binds if not self.open.keys().isdisjoint(places_of(it))),
            evictions=tuple(
                it for it in of.evictions if (Effect.EVICTION, pod_key(it)) in self.open
            ),
        )


def decision_of(id_: str, offset: int, statement: scheduling.StatementDecided) -> Decision:
    """A publication with all its assumptions, open. O(parts)."""
    awaits_volumes = any(bind.volumes for bind in statement.binds)
    decision = Decision(id_, offset, statement, awaits_volumes)
    decision.open = {(each.effect, each.key): each for each in parts_of(decision)}
    return decision


def parts_of(decision: Decision) -> Iterator[Assumption]:
    """One new assumption for each part of the decision's statement. O(parts)."""
    of = decision.statement
    if of.enqueue:
        yield Assumption(decision, Effect.ENTRY, of.pod_group, of.pod_group_uid)
    for bind in of.binds:
        yield Assumption(decision, Effect.BIND, pod_key(bind), bind.uid, bind=bind)
    yield from _claims_of(decision)
    for each in of.evictions:
        yield Assumption(decision, Effect.EVICTION, pod_key(each), each.uid, eviction=each)


def places_of(bind: scheduling.Bind) -> Iterator[Place]:
    """The pod, and the claims that the bind assigns a volume or devices to."""
    yield Effect.BIND, pod_key(bind)
    for volume in bind.volumes:
        yield Effect.VOLUME, claim_key(bind, volume)
    for devices in bind.devices:
        if devices.allocation is not None:
            yield Effect.DEVICES, claim_key(bind, devices)


def _claims_of(decision: Decision) -> Iterable[Assumption]:
    """One assumption for each claim, even if several pods need it."""
    assumptions: dict[Place, Assumption] = {}
    for bind in decision.statement.binds:
        for volume in bind.volumes:
            key = claim_key(bind, volume)
            assumption = Assumption(decision, Effect.VOLUME, key, volume.uid, bind, volume=volume)
            assumptions.setdefault((Effect.VOLUME, key), assumption)
        for devices in bind.devices:
            if devices.allocation is not None:
                key = claim_key(bind, devices)
                assumption = Assumption(
                    decision, Effect.DEVICES, key, devices.uid, bind, devices=devices
                )
                assumptions.setdefault((Effect.DEVICES, key), assumption)
    return assumptions.values()


def claim_key(
    of: scheduling.Bind | scheduling.ClaimOutcome,
    step: scheduling.ClaimedVolume | scheduling.ClaimedDevices | scheduling.ClaimOutcome,
) -> str:
    """Key of the claim."""
    return f"{of.namespace}/{step.claim}"


def pod_key(of: scheduling.Bind | scheduling.Eviction | scheduling.TaskOutcome) -> str:
    """Key of the pod."""
    return f"{of.namespace}/{of.pod}"


def identity_of(pod: core.Pod) -> TaskIdentity:
    """Identity of the task that a pod was created for."""
    at = pod.metadata
    job = at.uid if at.controller is None else at.controller.uid
    task = at.annotation(keys.TASK_SPEC) or at.label(keys.TASK_SPEC) or ""
    return TaskIdentity(job, _version_of(pod), task, index_of(pod))


def index_of(pod: core.Pod) -> int:
    """The task's index, else the trailing number of a pod name of three parts or more, else 0."""
    text = pod.metadata.annotation(keys.TASK_INDEX) or pod.metadata.label(keys.TASK_INDEX)
    if text is None and pod.metadata.name.count("-") >= 2:
        text = pod.metadata.name.rpartition("-")[2]
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0


def _version_of(pod: core.Pod) -> int:
    text = pod.metadata.annotation(keys.JOB_VERSION) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def rank_of(id_: str) -> Rank | None:
    """Epoch and sequence of a decision's id; None if the text is not one."""
    _, _, position = id_.partition("/")
    epoch, _, sequence = position.partition("/")
    if not (epoch.isdecimal() and sequence.isdecimal()):
        return None
    return int(epoch), int(sequence)

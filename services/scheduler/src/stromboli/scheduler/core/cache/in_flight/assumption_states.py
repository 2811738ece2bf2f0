"""States of an assumption: a decision of the scheduler that the cluster does not show yet.

A published decision consists of *assumptions*, one for each bind, each claim that a bind assigns a
volume or devices to, each eviction and the entry into the queue. Every assumption is in exactly one
state, and the table ``TRANSITIONS`` is the only place that changes it::

    assumed   --answered_executed--> executed
    assumed   --answered_refused---> refused
    assumed   --observed-----------> confirmed
    assumed   --republished--------> assumed
    executed  --observed-----------> confirmed
    executed  --republished--------> assumed
    refused   --republished--------> assumed
    confirmed --republished--------> assumed

``assumed`` and ``executed`` are *open*: the assumption holds what it decides on (a node's
resources, volumes, devices; the pod counts as terminating; the PodGroup counts as enqueued).
``refused`` and ``confirmed`` are *closed*: it holds nothing and is forgotten.

Rules:

1. An assumption is closed by the outcome or by the snapshot, never by time. ``executed`` does not
   close it: the snapshot that shows the effect may still be on its way.
2. *Observed* means that no snapshot can show the opposite, not even an earlier one: the pod, by its
   uid, is bound or terminating; the volume claim names its volume, and the volume is claimed. An
   entry can be revoked and devices can be deallocated before a snapshot shows either, so they are
   observed only once the outcome names a version of the PodGroup or claim and the object is seen in
   that version or a later one. If the outcome has no version, the effect itself must be visible.
3. A pod that is absent may be one whose snapshot has not been read yet, also if another pod has its
   name. It counts as gone only once all topics have been read to their ends.
4. A decision may be published again, under its id, with what is still open of it. Only the outcome
   of its newest publication counts, because the controller may act on each publication: a refusal
   of the first one does not free what the second one is about to take. Of several outcomes of one
   publication the first one counts.
5. Outcomes name the publication by its offset. An outcome whose publication has not been read yet
   is kept until it has been read; one of an earlier publication changes nothing. Therefore every
   interleaving of decisions, outcomes and snapshots that keeps the order within a topic leads to
   the same state.
6. A planned pod does not exist when its bind is decided, and may be deleted before its first
   snapshot is read or after compaction has left nothing else of it. So its snapshot alone closes
   nothing: a reader that finds only the deletion cannot know that the pod has existed. The bind is
   closed by the outcome of the newest publication, if that is a refusal, else once the version of
   the created pod, or a later one of any pod, has been read: the monitor publishes pods in the
   order of their versions. A pod that cannot be read keeps its bind open.
7. Assumptions close one by one. One that stays open does not keep the room or the memory of others,
   in its own decision or in another. Once its decision has been published again, a restart need not
   read from the old offset either.
8. A decision whose assumptions the snapshots have all closed is kept until its outcome is read or
   is certainly lost. Which binds were refused, and so whether a gang was started only in part, does
   not depend on which of the two is read first.
9. A bound pod closes its bind, and each claim closes on its own: by the snapshots of the claim, or
   with the refusal of all binds that need it. Devices of a claim that several pods need stay
   allocated if one of these pods is bound by another decision; the outcome then contains the claim,
   which counts as executed although the bind was refused.

Identity: an assumption names a pod by its uid, and a planned pod by the decision's id, which the
controller writes to the pod.

The states and events as data, with a transition that is not in the table being an error, follow
h11 (``h11/_state.py``) and dask (``distributed/worker_state_machine.py``).
"""

import enum
from collections.abc import Mapping

from stromboli.shared import errors


class State(enum.StrEnum):
    """State of an assumption."""

    ASSUMED = "assumed"
    EXECUTED = "executed"
    REFUSED = "refused"
    CONFIRMED = "confirmed"


class Event(enum.StrEnum):
    """An event that changes the state of an assumption."""

    ANSWERED_EXECUTED = "answered_executed"
    ANSWERED_REFUSED = "answered_refused"
    OBSERVED = "observed"
    REPUBLISHED = "republished"


OPEN = frozenset({State.ASSUMED, State.EXECUTED})
"""States in which an assumption holds what it decides on."""

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (State.ASSUMED, Event.ANSWERED_EXECUTED): State.EXECUTED,
    (State.ASSUMED, Event.ANSWERED_REFUSED): State.REFUSED,
    (State.ASSUMED, Event.OBSERVED): State.CONFIRMED,
    (State.ASSUMED, Event.REPUBLISHED): State.ASSUMED,
    (State.EXECUTED, Event.OBSERVED): State.CONFIRMED,
    (State.EXECUTED, Event.REPUBLISHED): State.ASSUMED,
    (State.REFUSED, Event.REPUBLISHED): State.ASSUMED,
    (State.CONFIRMED, Event.REPUBLISHED): State.ASSUMED,
}


class IllegalTransitionError(errors.InvariantError):
    """The table does not allow this event in this state: a defect of the scheduler."""

    def __init__(self, key: str, state: State, event: Event, history: tuple[Event, ...]) -> None:
        past = ", ".join(history) or "nothing"
        super().__init__(f"{key}: {event} in state {state}, after {past}")
        self.key = key
        self.state = state
        self.event = event
        self.history = history


def after(key: str, state: State, event: Event, history: tuple[Event, ...]) -> State:
    """The state that follows; ``key`` and ``history`` are for the error.

    Raises IllegalTransitionError.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(key, state, event, history) from None


def diagram() -> str:
    """The table as the lines in this module's docstring."""
    return "\n".join(
        f"{start:<9} {'--' + event:-<21}> {end}" for (start, event), end in TRANSITIONS.items()
    )

"""The states of a queue: a table of (state, action), as in Volcano.

A deliberate difference: a PodGroup whose pods have all ended does not keep a queue from being
closed.
"""

from collections.abc import Mapping
from typing import Literal, get_args

State = Literal["Open", "Closing", "Closed", "Unknown"]
Action = Literal["OpenQueue", "CloseQueue", "SyncQueue"]

STATES: tuple[State, ...] = get_args(State)
ACTIONS: tuple[Action, ...] = get_args(Action)
SHUT: frozenset[str] = frozenset({"Closing", "Closed"})
"""States in which the queue admits no new PodGroups."""
_AS_IT_EMPTIES: Literal["as it empties"] = "as it empties"
"""The next state is Closed if the queue is empty, else Closing."""

TABLE: Mapping[tuple[State, Action], State | Literal["as it empties"]] = {
    ("Open", "OpenQueue"): "Open",
    ("Open", "CloseQueue"): _AS_IT_EMPTIES,
    ("Open", "SyncQueue"): "Open",
    ("Closing", "OpenQueue"): "Open",
    ("Closing", "CloseQueue"): _AS_IT_EMPTIES,
    ("Closing", "SyncQueue"): _AS_IT_EMPTIES,
    ("Closed", "OpenQueue"): "Open",
    ("Closed", "CloseQueue"): "Closed",
    ("Closed", "SyncQueue"): "Closed",
    ("Unknown", "OpenQueue"): "Open",
    ("Unknown", "CloseQueue"): _AS_IT_EMPTIES,
    ("Unknown", "SyncQueue"): "Unknown",
}


def read(text: str) -> State:
    """The state in a queue's status. An empty text means Open, an unrecognized one Unknown."""
    if not text:
        return "Open"
    return next((state for state in STATES if state == text), "Unknown")


def after(state: State, action: Action, *, is_empty: bool) -> State:
    """The state after an action. ``is_empty``: no PodGroup in the queue has work left."""
    next_state = TABLE[state, action]
    if next_state == "as it empties":
        return "Closed" if is_empty else "Closing"
    return next_state

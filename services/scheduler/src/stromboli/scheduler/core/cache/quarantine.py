"""Quarantine: objects that the core failed on count as unreadable until they change.

A failure that one object triggers is a bug, but it must not end the process: the object would still
be there after a restart, which would then end the same way. Three cases:

1. A change cannot be applied: its object is quarantined. The cluster model is rebuilt from the
   snapshots, so that no partly applied change is left.
2. A session fails outside of plugins: the innermost frame of the traceback with jobs, pods or other
   objects in its local variables names the suspects. They are quarantined, the model is rebuilt and
   the session is attempted again.
3. There is no suspect, or the failure remains without it: an invariant across objects is broken.
   ``errors.InvariantError`` ends the process, with key, event and the last changes.

Quarantined means unreadable, never absent. The node of a quarantined pod takes no pods, and the
pod's job is frozen (neither scheduled nor evicted); a quarantined node takes no pods; the jobs of a
quarantined queue wait. A PodGroup that a session failed on is frozen first, so that its pods
still count, and becomes unreadable only if that does not help. An object that changes is tried
again, at most ``MAX_FAILURES`` times for one uid, as each failure may cost a rebuild.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any

import msgspec

from stromboli.scheduler.core.model import entities
from stromboli.shared import errors, snapshot
from stromboli.shared.api import kinds, meta
from stromboli.shared.api import scheduling_view as api_seen

MAX_FAILURES = 3
MAX_SUSPECTS = 4
"""Largest number of suspects of one failure. If there are more, none is quarantined."""
HISTORY = 20
_REASON_CHARACTERS = 300

Key = tuple[kinds.Kind[Any], str]
_KINDS: Mapping[type[meta.Object], kinds.Kind[Any]] = {
    kind.struct: kind for kind in api_seen.SCHEDULING_KINDS if kind is not kinds.PODS
}


class IsolatedObject(msgspec.Struct, frozen=True):
    """An object that the core failed on. ``is_frozen``: a PodGroup whose pods still count."""

    kind: kinds.Kind[Any]
    key: str
    uid: str
    reason: str
    is_frozen: bool = False

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key} is isolated: {self.reason}"


class Quarantine:
    """The snapshots as the core sees them, with isolated objects as unreadable.

    ``unreported``: isolated objects and their errors not reported yet; the reporter clears
    it.
    """

    def __init__(self, snapshot_view: snapshot.Snapshot) -> None:
        self.unreported: list[tuple[IsolatedObject, Exception]] = []
        self._seen = snapshot_view
        self._isolated: dict[Key, IsolatedObject] = {}
        self._failures: dict[Key, tuple[str, int]] = {}
        self._history: deque[snapshot.Change] = deque(maxlen=HISTORY)

    def __len__(self) -> int:
        return len(self._isolated)

    def state(self, kind: kinds.Kind[Any], key: str) -> snapshot.State:
        """The object as the core sees it."""
        isolated, state = self._isolated.get((kind, key)), self._seen.state(kind, key)
        if isolated is None or isolated.is_frozen or state is None:
            return state
        return snapshot.Unknown(isolated.reason)

    def frozen(self, pod_group: str) -> str:
        """Why the PodGroup is frozen; empty if it is not isolated."""
        isolated = self._isolated.get((kinds.POD_GROUPS, pod_group))
        return isolated.reason if isolated is not None else ""

    def complaints(self) -> list[str]:
        """A line for each isolated object."""
        return sorted(str(isolated) for isolated in self._isolated.values())

    def follow(self, change: snapshot.Change) -> IsolatedObject | None:
        """Note a change; release and return an isolated object that has not failed too often."""
        self._history.append(change)
        if not self._failures:
            return None
        kind, key, after = change.kind, change.key, change.after
        uid, failures = self._failures.get((kind, key), ("", 0))
        is_same = isinstance(after, meta.Object) and after.metadata.uid == uid
        if not is_same:
            self._failures.pop((kind, key), None)
        if not is_same or failures < MAX_FAILURES:
            return self._isolated.pop((kind, key), None)
        return None

    def isolate(self, at: Key, error: Exception, *, by_session: bool) -> bool:
        """Isolate the object; return False if it is absent, unreadable or isolated already."""
        kind, key = at
        state, previous = self._seen.state(kind, key), self._isolated.get(at)
        if not isinstance(state, meta.Object) or (previous is not None and not previous.is_frozen):
            return False
        reason = f"internal error: {_described(error)}"
        is_frozen = by_session and kind == kinds.POD_GROUPS and previous is None
        isolated = IsolatedObject(kind, key, state.metadata.uid, reason, is_frozen)
        before, failures = self._failures.get(at, ("", 0))
        self._failures[at] = (isolated.uid, failures + 1 if before == isolated.uid else 1)
        self._isolated[at] = isolated
        self.unreported.append((isolated, error))
        return True

    def invariant_error(self, doing: str, error: Exception) -> errors.InvariantError:
        """The error that ends the process when no object can be blamed."""
        return errors.InvariantError(
            f"{doing}: {_described(error)}; isolated so far: {self.complaints() or 'nothing'}; "
            f"last changes: {'; '.join(map(_line, self._history)) or 'none'}"
        )


def suspects(error: BaseException) -> tuple[Key, ...]:
    """The objects in the local variables of the innermost frame that has any; empty if there are
    more than ``MAX_SUSPECTS``.

    PodGroups come first, because most failures of sessions are triggered by a job.
    """
    for frame in _frames(error):
        by_rank: dict[int, dict[Key, None]] = {}
        for value in frame.f_locals.values():
            for rank, key in _objects(value):
                by_rank.setdefault(rank, {})[key] = None
        if by_rank:
            best = tuple(by_rank[min(by_rank)])
            return best if len(best) <= MAX_SUSPECTS else ()
    return ()


def _objects(value: object) -> Iterator[tuple[int, Key]]:
    match value:
        case entities.Task():
            yield 0, ((kinds.POD_GROUPS, value.job) if value.job else (kinds.PODS, value.key))
        case entities.Job():
            yield 0, (kinds.POD_GROUPS, value.key)
        case entities.Queue():
            yield 2, (kinds.QUEUES, value.name)
        case meta.Object() if type(value) in _KINDS:
            yield 1, (_KINDS[type(value)], value.metadata.key)
        case _:
            pass


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Frames of the error, then of its causes; the innermost frame first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and not any(current is each for each in chain):
        chain.append(current)
        yield from reversed(list(_traceback_frames(current.__traceback__)))
        current = current.__cause__ or current.__context__


def _traceback_frames(trace: TracebackType | None) -> Iterator[FrameType]:
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def _line(change: snapshot.Change) -> str:
    after = change.after
    version = after.metadata.version if isinstance(after, meta.Object) else "-"
    return f"{change.kind.kind} {change.key} at {version} ({change.cause})"


def _described(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    return f"{type(cause).__name__}: {cause}"[:_REASON_CHARACTERS]

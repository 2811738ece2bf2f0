"""Cool-down of nodes that rejected pods because of their placement (``OutOfcpu``, for example).

The kubelet knows something that the scheduler does not, such as a static pod or a device that is
gone, so the next session would choose the same node. Rules:

1. A rejection closes the node to pods of the same class (requests, selectors, tolerations) for
   ``FIRST_WAIT``, and after the n-th one in a row for ``FIRST_WAIT`` x 2^(n-1), at most
   ``MAX_WAIT``. All rejections that one session reads of a node and class count as one.
2. A node is forgotten when it was open for as long as it had been closed, without a rejection.
3. A rejected pod counts once: in the version in which a session first reads it. Sessions record the
   highest such version, so the rule needs no memory of pods.

Liveness: a session runs at the end of each cool-down. Gangs that fail meanwhile are not skipped as
unschedulable, because the end of a cool-down changes no node.

Sessions keep the cool-downs in their recorded memory, so that a restart and a replay know them. At
most ``MAX_NODES`` of them, those that end last, are kept. A node whose cool-down is dropped may
reject another pod, which costs the job no retry.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta

import msgspec
import numpy as np

from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import node_cooldowns, session
from stromboli.scheduler.core.model import requirements
from stromboli.scheduler.core.placement import extension_points
from stromboli.shared import decoding, node_rejections
from stromboli.shared.api import core

NAME = "node-rejections"
"""Key of the session's memory."""
FIRST_WAIT = timedelta(minutes=1)
MAX_WAIT = timedelta(minutes=30)
MAX_NODES = 1_000
"""Maximum number of cool-downs: about 70 bytes each in the record of every session that decides."""
_MAX_DOUBLINGS = 10


class Cooldown(msgspec.Struct, frozen=True, array_like=True):
    """A node that takes no pods of a class since ``at``, after ``rejections`` in a row."""

    node: str
    of_class: str
    at: datetime
    rejections: int

    @property
    def wait(self) -> timedelta:
        """Length of the cool-down."""
        doublings = min(self.rejections - 1, _MAX_DOUBLINGS)
        return min(timedelta(seconds=FIRST_WAIT.total_seconds() * 2**doublings), MAX_WAIT)

    @property
    def until(self) -> datetime:
        """End of the cool-down."""
        return durations.after(self.at, self.wait)


class _Memory(msgspec.Struct, frozen=True, array_like=True):
    """``seen``: the highest version of a rejected pod that was counted."""

    seen: int = 0
    cooldowns: tuple[Cooldown, ...] = ()


class RejectedPods:
    """Rejected pods in the snapshot, by key. ``put`` is O(1)."""

    def __init__(self) -> None:
        self._found: dict[str, core.Pod] = {}

    def put(self, key: str, state: object) -> bool:
        """Note the newest state of a pod. Returns whether its node has rejected it now: a session
        has to read that before the pod is deleted, which takes two writes of the controller."""
        before = self._found.pop(key, None)
        if not isinstance(state, core.Pod) or not node_rejections.is_rejected(state):
            return False
        self._found[key] = state
        return before is None

    def above(self, version: int) -> Iterator[core.Pod]:
        """Rejected pods with a higher resourceVersion than this, by key. O(rejected pods)."""
        for key in sorted(self._found):
            if self._found[key].metadata.version > version:
                yield self._found[key]


def cool_down(opened: session.Session, rejected: RejectedPods) -> None:
    """Close nodes of the session to the classes of pods that they rejected. Call it before the
    actions. O(rejected pods + cool-downs)."""
    before = _decode(opened.cluster.memory.get(NAME, ""))
    fresh = list(rejected.above(before.seen))
    if not fresh and not before.cooldowns:
        return
    known = {(it.node, it.of_class): it for it in before.cooldowns}
    for at in dict.fromkeys(_places(fresh)):
        earlier = known.get(at)
        count = 1 if earlier is None else earlier.rejections + 1
        known[at] = Cooldown(*at, opened.now, count)
    kept = bounded(it for it in known.values() if opened.now < durations.after(it.until, it.wait))
    newest_version = max((pod.metadata.version for pod in fresh), default=before.seen)
    opened.remember[NAME] = msgspec.json.encode(_Memory(newest_version, kept)).decode()
    opened.cooldowns = node_cooldowns.NodeCooldowns(_masks(opened, kept))


def bounded(cooldowns: Iterable[Cooldown]) -> tuple[Cooldown, ...]:
    """At most ``MAX_NODES`` cool-downs, the ones that end last, by node and class."""
    last = sorted(cooldowns, key=lambda it: (it.until, it.node, it.of_class), reverse=True)
    return tuple(sorted(last[:MAX_NODES], key=lambda it: (it.node, it.of_class)))


def _places(rejected: Iterable[core.Pod]) -> Iterator[tuple[str, str]]:
    """Node and class of each pod."""
    shapes = requirements.RequirementsIndex()
    for pod in rejected:
        if pod.spec.node_name:
            try:
                shape = shapes.of(pod.spec)
            except ValueError:
                continue  # a quantity that cannot be read: no task has this class
            yield pod.spec.node_name, node_cooldowns.class_of(shape)


def _masks(
    opened: session.Session, kept: Iterable[Cooldown]
) -> Mapping[str, extension_points.Mask]:
    rows = {name: row for row, name in enumerate(opened.nodes.names)}
    masks: dict[str, extension_points.Mask] = {}
    for each in kept:
        if each.node in rows and not opened.reached(each.until):
            mask = masks.setdefault(each.of_class, np.ones(len(rows), np.bool_))
            mask[rows[each.node]] = False
    return masks


def _decode(text: str) -> _Memory:
    try:
        return decoding.from_json(text, _Memory) if text else _Memory()
    except msgspec.DecodeError:  # written by another version: counting starts again
        return _Memory()

"""Admitted gangs for which no room is kept, because they cannot use it.

The phase Inqueue reserves the minimum resources of a gang until its pods hold them. Three kinds of
gangs would reserve them indefinitely, and others would never be admitted:

- *without pods* for ``queue_usage.PODS_EXPECTED_WITHIN``: their creation fails, or the gang is
  suspended, as a RayCluster can be;
- *too large*: the explanation says that the gang can never fit the cluster as it is;
- *obstructed*: it cannot start even if all other gangs end (``eventual_room``): no node has its
  labels, all nodes have a taint, its volume is absent.

These gangs stay Inqueue. Their room counts again once they have pods or may fit. Pods are placed on
idle resources only, so nothing is over-committed meanwhile. A gang that waits for room that other
gangs hold keeps its reservation: otherwise small gangs would take all room that becomes free.

Sessions keep all kinds in their recorded memory, so that a restart and a replay know them. What a
session finds applies from the next session on.
"""

from collections.abc import Mapping
from datetime import timedelta

import msgspec

from stromboli.scheduler.core.cluster import cluster_model
from stromboli.scheduler.core.framework import session
from stromboli.shared import decoding
from stromboli.shared.messages import scheduling as messages

NAME = "lapsed-admissions"
MAX_GANGS = 1000
"""Maximum number of gangs of each kind, which limits the size of a record. The room of further
gangs is kept."""
SOON = timedelta(milliseconds=1)


class Lapsed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The gangs for which no room is kept: key -> uid of the PodGroup."""

    without_pods: dict[str, str] = {}
    too_large: dict[str, str] = {}
    obstructed: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.without_pods or self.too_large or self.obstructed)


def apply(model: cluster_model.ClusterModel, memory: Mapping[str, str]) -> None:
    """Keep no room for the gangs in the memory. Call it before the session opens, on a settled
    model. O(these gangs)."""
    known = _still_lapsed(model, _decode(memory.get(NAME, "")))
    keys = frozenset([*known.without_pods, *known.too_large, *known.obstructed])
    model.queue_usage.keep_no_room_for(keys, model.jobs)


def note(
    closed: session.Session,
    explained: Mapping[str, messages.PodGroupExplained | None],
    obstructed: Mapping[str, bool],
) -> None:
    """Remember the gangs that lapse, and forget others. ``explained``: changed explanations.
    ``obstructed``: whether each gang that the session tried is obstructed; others stay as they are.

    O(lapsed gangs and changes).
    """
    text = closed.cluster.memory.get(NAME, "")
    before = _decode(text)
    known = _still_lapsed(closed.model, before)
    without_pods, too_large = dict(known.without_pods), dict(known.too_large)
    due, next_due = closed.model.queue_usage.without_pods(closed.now)
    for key in due:
        if len(without_pods) < MAX_GANGS:
            without_pods[key] = closed.jobs[key].uid
    for key, explanation in explained.items():
        too_large.pop(key, None)
        is_too_large = explanation is not None and explanation.tier == "never-fits"
        job = closed.jobs.get(key)
        is_admitted = job is not None and job.phase == "Inqueue"
        if is_too_large and is_admitted and len(too_large) < MAX_GANGS:
            too_large[key] = closed.jobs[key].uid
    hindered = {key: uid for key, uid in known.obstructed.items() if obstructed.get(key, True)}
    for key in sorted(key for key, is_obstructed in obstructed.items() if is_obstructed):
        if key not in hindered and len(hindered) < MAX_GANGS:
            hindered[key] = closed.jobs[key].uid
    now = Lapsed(*(dict(sorted(each.items())) for each in (without_pods, too_large, hindered)))
    if now or text:
        closed.remember[NAME] = msgspec.json.encode(now).decode() if now else ""
    if now != before:
        closed.request_session_at(closed.now + SOON)
    if next_due is not None:
        closed.request_session_at(next_due)


def _still_lapsed(model: cluster_model.ClusterModel, known: Lapsed) -> Lapsed:
    """The lapsed gangs without gangs that are gone, were admitted again, or have pods now."""
    jobs = model.jobs

    def holds(key: str, uid: str) -> bool:
        return key in jobs and jobs[key].uid == uid and jobs[key].phase == "Inqueue"

    return Lapsed(
        {k: uid for k, uid in known.without_pods.items() if holds(k, uid) and not jobs[k].tasks},
        {k: uid for k, uid in known.too_large.items() if holds(k, uid)},
        {k: uid for k, uid in known.obstructed.items() if holds(k, uid)},
    )


def _decode(text: str) -> Lapsed:
    try:
        return decoding.from_json(text, Lapsed) if text else Lapsed()
    except msgspec.DecodeError:  # written by another version: sessions find the gangs again
        return Lapsed()

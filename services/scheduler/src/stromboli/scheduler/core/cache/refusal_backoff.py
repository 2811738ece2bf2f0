"""Back-off of gangs whose decisions are refused, so that sessions do not repeat them needlessly.

The API server may refuse a bind, an eviction or an admission to a queue for as long as a webhook or
a policy denies it. The scheduler cannot see why: the next session finds the same room and decides
the same. Rules:

1. Outcomes that refuse any part of a gang's decision count as one refusal of the gang.
2. After the first refusal the next session decides again, because the usual cause is a change that
   the session had not seen. After the n-th one (n > 1) sessions skip the gang for
   ``FIRST_WAIT`` x 2^(n-2), at most ``MAX_WAIT``. The gang holds no room meanwhile, and other gangs
   are decided as if it did not exist.
3. A gang is forgotten when none of its pods waits, when it starts, or when its PodGroup is gone.

Liveness: a session runs at the end of each wait, so a gang is tried at most ``MAX_WAIT`` after
refusals end.

Sessions keep the refused gangs in their recorded memory, so that a restart and a replay know them.
The record has a largest size, so at most ``MAX_GANGS`` are kept, those with the most refusals; the
others are decided in each session. The text of a refusal is kept in the gang's explanation.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from stromboli.scheduler.core.cache.in_flight.refusals import Refusal
from stromboli.scheduler.core.config import durations
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, job_builder
from stromboli.shared import decoding

NAME = "refusal-backoff"
"""Key of the session's memory."""
FIRST_WAIT = timedelta(seconds=1)
"""The initial back-off of unschedulable pods in Kubernetes' scheduler."""
MAX_WAIT = timedelta(minutes=1)
"""Longest delay of a gang after refusals have ended."""
MAX_GANGS = 1_000
"""Maximum number of gangs: about 120 bytes each in the record of every session that decides."""
_MAX_DOUBLINGS = 10


class RefusedGang(msgspec.Struct, frozen=True, array_like=True):
    """A gang with refusals since it last started.

    ``uid``: of the PodGroup. ``at``: time of the session that read the last refusal. ``refusals``:
    their number.
    """

    uid: str
    at: datetime
    refusals: int

    @property
    def retry_at(self) -> datetime:
        """When sessions decide about the gang again."""
        if self.refusals < 2:
            return self.at
        wait = FIRST_WAIT * 2 ** min(self.refusals - 2, _MAX_DOUBLINGS)
        return durations.after(self.at, min(wait, MAX_WAIT))


class BackingOff(msgspec.Struct, frozen=True):
    """A gang that the session skips. ``text``: the refusal, if the session is the first one to read
    it."""

    gang: RefusedGang
    text: str = ""


def back_off(opened: session.Session, refusals: Mapping[str, Refusal]) -> dict[str, BackingOff]:
    """Keep the session from deciding about refused gangs; return these by key.

    ``refusals``: PodGroup -> refusal of outcomes that no session has read. Call it before the
    actions. O(refused gangs).
    """
    before = _decode(opened.cluster.memory.get(NAME, ""))
    known: dict[str, RefusedGang] = {}
    for key in sorted(before.keys() | refusals.keys()):
        gang = _refused_gang(opened, key, before.get(key), refusals.get(key))
        if gang is not None:
            known[key] = gang
    known = bounded(known)
    if known or before:
        opened.remember[NAME] = msgspec.json.encode(known).decode() if known else ""
    waiting, backing_offs = set(opened.waiting), {}
    for key, gang in known.items():
        if key in waiting and not opened.reached(gang.retry_at):
            opened.jobs[key].is_backing_off = True
            fresh = refusals.get(key)
            backing_offs[key] = BackingOff(gang, "" if fresh is None else fresh.text)
    return backing_offs


def bounded(known: Mapping[str, RefusedGang]) -> dict[str, RefusedGang]:
    """The gangs that are remembered: at most ``MAX_GANGS``, by number of refusals."""
    if len(known) <= MAX_GANGS:
        return dict(known)
    chosen = sorted(known, key=lambda key: (-known[key].refusals, key))[:MAX_GANGS]
    return {key: known[key] for key in sorted(chosen)}


def message_of(key: str, backing_off: BackingOff) -> str:
    """The sentences that explain the back-off to the gang's user."""
    gang = backing_off.gang
    at = gang.retry_at.isoformat(timespec="seconds")
    text = backing_off.text or f"{key} was refused"
    return f"{text}. Refused {gang.refusals} times in a row; the next attempt is at {at}."


def _refused_gang(
    opened: session.Session, key: str, before: RefusedGang | None, fresh: Refusal | None
) -> RefusedGang | None:
    """The gang with its earlier refusals and the new one; None once it is forgotten."""
    job = opened.model.job(key)
    if job is None:
        return before if ("podgroup", key) in opened.model.problems else None
    if not (job_builder.needs_session(job) or job.count(entities.Status.BINDING)):
        return None
    uid = job.pod_group.metadata.uid
    if before is not None and before.uid != uid:
        before = None
    if fresh is not None and fresh.uid == uid:
        return RefusedGang(uid, opened.now, 1 + (before.refusals if before else 0))
    if before is not None and before.at > opened.now:  # the clock was set back
        return msgspec.structs.replace(before, at=opened.now)
    return before


def _decode(text: str) -> dict[str, RefusedGang]:
    try:
        return decoding.from_json(text, dict[str, RefusedGang]) if text else {}
    except msgspec.DecodeError:  # written by another version: counting starts again
        return {}

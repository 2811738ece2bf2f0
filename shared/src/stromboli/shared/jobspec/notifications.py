"""Parses the notifications that a job requests in its annotation ``stromboli.sh/notify``. Pure.

::

    TARGET=EVENT[,EVENT...] ...        ops-slack=Failed,LongWait mail:ann@example.org=Completed

A target is a name that the installation defines, or ``mail:`` and an address. It is never a URL: a
tenant must not choose which hosts a service calls.
"""

import re
from collections.abc import Iterator

import msgspec

from stromboli.shared import keys
from stromboli.shared.api import batch
from stromboli.shared.messages.admission import Violation

STARTED, COMPLETED, FAILED = "Started", "Completed", "Failed"
STOPPED, PREEMPTED, LONG_WAIT = "Stopped", "Preempted", "LongWait"
EVENTS = (STARTED, COMPLETED, FAILED, STOPPED, PREEMPTED, LONG_WAIT)
"""``Stopped``: the job was terminated or suspended."""
MAIL = "mail:"
MOST_TARGETS = 8
LONGEST = 1000
"""Maximum length of the annotation in characters; events contain it."""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9.+_-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")


class Subscription(msgspec.Struct, frozen=True):
    """A target, and the events that it receives."""

    target: str
    events: frozenset[str]


def parse(text: str) -> tuple[Subscription, ...]:
    """The subscriptions in an annotation. Raises ValueError, which names the invalid part."""
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters, at most {LONGEST} are allowed")
    words = text.split()
    if len(words) > MOST_TARGETS:
        raise ValueError(f"it has {len(words)} targets, at most {MOST_TARGETS} are allowed")
    return tuple(map(_subscription, words))


def _subscription(word: str) -> Subscription:
    target, _, listed = word.rpartition("=")
    if not (_NAME.fullmatch(target) or _ADDRESS.fullmatch(target.removeprefix(MAIL))):
        raise ValueError(f"{word!r} has no target; write NAME=EVENT or mail:ADDRESS=EVENT")
    if "@" in target and not target.startswith(MAIL):
        raise ValueError(f"{target!r} is an address; write {MAIL}{target}")
    events = listed.split(",")
    if unknown := [event for event in events if event not in EVENTS]:
        raise ValueError(f"{unknown[0]!r} is not an event; use one of {', '.join(EVENTS)}")
    return Subscription(target, frozenset(events))


def violations(job: batch.Job) -> Iterator[Violation]:
    """Violations of the annotation of a job."""
    try:
        parse(job.metadata.annotation(keys.NOTIFY) or "")
    except ValueError as error:
        yield Violation(
            path=f"metadata.annotations[{keys.NOTIFY}]",
            reason=str(error),
            expected="TARGET=EVENT[,EVENT...], as ops-slack=Failed mail:ann@example.org=Completed",
        )

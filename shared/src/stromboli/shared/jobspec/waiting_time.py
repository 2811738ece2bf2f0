"""The annotation ``sla-waiting-time`` of jobs and PodGroups: how long a gang may wait before the
scheduler's plugin ``sla`` admits it regardless of other plugins.
"""

from collections.abc import Iterator
from datetime import timedelta

from stromboli.shared import keys
from stromboli.shared.api import meta
from stromboli.shared.formats import durations

KEYS = (keys.SLA_WAITING_TIME, "sla-waiting-time")
"""The annotation's names; the first one that has a value applies."""


def of(metadata: meta.ObjectMeta) -> str:
    """The waiting time as text; empty if the object has none."""
    return next(filter(None, map(metadata.annotation, KEYS)), "")


def parse(text: str) -> timedelta:
    """The waiting time, above zero. Raises ValueError, whose text names the accepted form."""
    waiting_time = durations.duration(text)
    if waiting_time <= timedelta():
        raise ValueError(f"{text!r} is not above zero: write a duration such as 90s or 1h30m")
    return waiting_time


def warnings(metadata: meta.ObjectMeta) -> Iterator[str]:
    """The warning about a waiting time that has no effect because it cannot be used."""
    key = next(filter(metadata.annotation, KEYS), None)
    if key is None:
        return
    try:
        parse(of(metadata))
    except ValueError as error:
        yield f"metadata.annotations[{key}]: {error}; it is ignored"

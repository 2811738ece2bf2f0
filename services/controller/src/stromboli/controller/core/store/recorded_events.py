"""The Kubernetes Events that were recorded about each object, with their last times."""

from datetime import datetime

from stromboli.controller.core import commands

MAX_RECORDED = 32
"""Maximum number of recorded Events that are kept per object, so that a lasting problem is reported
rarely and memory is bounded."""


class RecordedEvents:
    """The recorded Events, by uid of the object."""

    def __init__(self) -> None:
        self._recorded: dict[str, dict[str, datetime]] = {}

    def has(self, event: commands.RecordEvent) -> bool:
        """Whether the Event is recorded: for a recurring Event this occurrence, for any other Event
        an occurrence within ``REPEATED_AFTER``."""
        last = self._recorded.get(event.uid, {}).get(event.event_name)
        if last is None or event.at <= last:
            return last is not None
        return not event.recurs and event.at < last + commands.REPEATED_AFTER

    def mark(self, event: commands.RecordEvent) -> None:
        """Note a recorded Event. The last ``MAX_RECORDED`` per object are kept."""
        event_times = self._recorded.setdefault(event.uid, {})
        event_times.pop(event.event_name, None)
        event_times[event.event_name] = event.at
        if len(event_times) > MAX_RECORDED:
            del event_times[next(iter(event_times))]

    def forget(self, uid: str) -> None:
        """Remove the Events of an object that is gone."""
        self._recorded.pop(uid, None)

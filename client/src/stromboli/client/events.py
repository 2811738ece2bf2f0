"""Server-sent events: the wire format, and the changes of a watch. Pure.

Source: WHATWG HTML, section 9.2.6 (interpreting an event stream).
"""

from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")
ChangeType = Literal["added", "modified", "deleted", "reset", "synced"]


class Event(msgspec.Struct, frozen=True):
    """A server-sent event; ``data`` is its data lines, joined by newlines."""

    type: str
    data: str


class Change(msgspec.Struct, Generic[T], frozen=True):
    """A change of an object. ``reset`` and ``synced`` have no object.

    A watch begins with all existing objects as ``added``, followed by ``synced``. ``reset``: too
    many changes were missed; drop all objects, because the watch sends them again up to the next
    ``synced``.
    """

    type: ChangeType
    object: T | None = None


class Parser:
    """Parses the lines of a stream into events. ``last_id``: the id to resume from."""

    def __init__(self) -> None:
        self.last_id = ""
        self._id = ""
        self._type = ""
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        """The event that this line (without its end) completes."""
        if not line:
            return self._completed()
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id" and "\0" not in value:
            self._id = value
        elif field == "event":
            self._type = value
        elif field == "data":
            self._data.append(value)
        return None

    def broken(self) -> None:
        """The stream ended: an incomplete event is dropped."""
        self._id, self._type, self._data = self.last_id, "", []

    def _completed(self) -> Event | None:
        self.last_id = self._id
        event = Event(self._type or "message", "\n".join(self._data)) if self._data else None
        self._type, self._data = "", []
        return event

"""Messages about the log itself: epochs and parked records."""

from stromboli.shared.messages.base import Message, register

OPENED = "stromboli.log.opened.v1"
OPENED_KEY = "$opened"


@register(OPENED)
class Opened(Message, frozen=True, kw_only=True):
    """A writer begins; this record's offset is its epoch (key ``$opened`` on its main topic)."""

    writer: str
    instance: str


@register("stromboli.log.parked.v1")
class Parked(Message, frozen=True, kw_only=True):
    """A record that could not be decoded or handled. ``value`` is base64, at most 64 KiB of it."""

    topic: str
    offset: int
    key: str
    parked_by: str
    reason: str
    headers: dict[str, str]
    value: bytes = b""

"""Messages of the log itself: epochs and dead letters."""

from stromboli.shared.messages.base import Message, register

OPENED = "stromboli.log.opened.v1"
OPENED_KEY = "$opened"
ANNOUNCED = "stromboli.log.epoch_announced.v1"
ANNOUNCED_KEY = "$epoch"
EPOCH_LIMIT = 2**53
"""Epochs are below this limit, so that JSON parsers of all languages represent them exactly."""


@register(OPENED)
class Opened(Message, frozen=True, kw_only=True):
    """A writer opened the log (key ``$opened`` on the writer's main topic). Its epoch is the larger
    of this record's offset and ``floor``, which is above every epoch on the writer's topics: a
    topic that was deleted and created again starts at offset 0, and epochs must not decrease."""

    writer: str
    instance: str
    floor: int = 0


@register(ANNOUNCED)
class EpochAnnounced(Message, frozen=True, kw_only=True):
    """A writer announced its epoch, which is in this record's id (key ``$epoch``). This is the
    first record of a writer on each of its topics except the main topic; its other records follow.
    Readers drop records with a higher epoch that was not announced."""

    writer: str
    instance: str


@register("stromboli.log.dead_letter.v1")
class DeadLetter(Message, frozen=True, kw_only=True):
    """A record that could not be decoded or handled. ``value`` is base64, at most 64 KiB of it."""

    topic: str
    offset: int
    key: str
    reported_by: str
    reason: str
    headers: dict[str, str]
    value: bytes = b""

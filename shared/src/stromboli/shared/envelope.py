"""The envelope of every record: CloudEvents in Kafka's binary mode.

Headers: ``ce_specversion`` ``ce_id`` (writer/epoch/sequence) ``ce_type`` ``ce_source`` ``ce_time``
``content-type``, the extensions ``ce_cluster`` (name of the Kubernetes cluster) and ``ce_cause``
(id of the event that caused this one), and W3C ``traceparent``. ``ce_source`` is
``/clusters/<name>/<writer>``: source and id together are unique even if records of several clusters
are joined. A tombstone also has ``ce_objectuid`` and ``ce_objectversion``, a copy ``ce_position``:
the offset of the original. Source: CloudEvents 1.0.2 Kafka protocol binding, and its distributed
tracing extension.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from stromboli.shared import decoding, errors, topics
from stromboli.shared.messages import base, cluster, log

Headers = Mapping[str, str]


class Encoded(msgspec.Struct, frozen=True):
    """An encoded message: the name of its type, and its bytes."""

    type: str
    value: bytes


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A record to be appended. A draft without a message is a tombstone and needs uid and version.

    ``encoded``: the message if it is encoded already; ``message`` may then be None. ``time``: the
    time that was passed to the core, so that the same input produces the same bytes.
    """

    topic: topics.Topic
    key: str
    message: msgspec.Struct | None
    encoded: Encoded | None = None
    time: datetime
    cause: str = ""
    traceparent: str = ""
    object_uid: str = ""
    object_version: str = ""
    position: int | None = None


class Record(msgspec.Struct, frozen=True):
    """A record as read from a topic. Its content is not validated yet, see ``decode``."""

    topic: topics.Topic
    offset: int
    key: str
    value: bytes | None
    headers: Headers

    @property
    def id(self) -> str:
        """The event's id; empty if absent."""
        return self.headers.get("ce_id", "")

    @property
    def type(self) -> str:
        """The name of the message type; empty if absent."""
        return self.headers.get("ce_type", "")

    @property
    def cluster_name(self) -> str:
        """The name of the record's Kubernetes cluster; empty if absent."""
        return self.headers.get("ce_cluster", "")

    @property
    def cause(self) -> str:
        """The id of the event that caused this one; empty if absent."""
        return self.headers.get("ce_cause", "")

    @property
    def traceparent(self) -> str:
        """The W3C trace context; empty if absent."""
        return self.headers.get("traceparent", "")

    @property
    def epoch(self) -> int | None:
        """The writer's epoch; None for a record that our services did not write.

        It is part of the id, except in ``Opened`` records: their own offset determines the epoch
        (see ``log.Opened``), and the id is chosen before the record has an offset.
        """
        if self.topic.main and self.type == log.OPENED:
            return self._opened_epoch()
        parts = self.id.split("/")
        epoch = decoding.number(parts[1]) if len(parts) == 3 else None
        return epoch if epoch is None or epoch < log.EPOCH_LIMIT else None

    def _opened_epoch(self) -> int | None:
        try:
            opened = base.decode(log.OPENED, self.value or b"")
        except msgspec.DecodeError:
            return None
        assert isinstance(opened, log.Opened)
        return max(self.offset, opened.floor) if opened.floor < log.EPOCH_LIMIT else None

    @property
    def time(self) -> datetime:
        """When the event occurred. Raises UndecodableError."""
        try:
            return decoding.instant(self.headers.get("ce_time", ""))
        except msgspec.DecodeError as error:
            raise self.undecodable(f"ce_time: {error}") from None

    def undecodable(self, reason: str) -> errors.UndecodableError:
        """The error for a record that cannot be decoded."""
        return errors.UndecodableError(self.topic.name, self.offset, self.key, reason)


def event_id(writer: str, epoch: int, sequence: int) -> str:
    """The id of an event: ``writer/epoch/sequence``."""
    return f"{writer}/{epoch}/{sequence}"


def seal(
    draft: Draft, writer: str, epoch: int, sequence: int, *, cluster_name: str
) -> tuple[dict[str, str], bytes | None]:
    """The headers and the value of a draft's record. Raises ValueError if the topic does not
    contain messages of this type."""
    encoded = _encoded(draft)
    headers = {
        "ce_specversion": "1.0",
        "ce_id": event_id(writer, epoch, sequence),
        "ce_type": cluster.GONE if encoded is None else encoded.type,
        "ce_source": f"/clusters/{cluster_name}/{writer}",
        "ce_time": draft.time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    }
    extensions = {
        "ce_cluster": cluster_name,
        "ce_cause": draft.cause,
        "traceparent": draft.traceparent,
        "ce_objectuid": draft.object_uid,
        "ce_objectversion": draft.object_version,
    }
    headers |= {name: value for name, value in extensions.items() if value}
    if draft.position is not None:
        headers["ce_position"] = str(draft.position)
    if encoded is None:
        return headers, None
    headers["content-type"] = "application/json"
    return headers, encoded.value


def _encoded(draft: Draft) -> Encoded | None:
    """The draft's message as bytes; None for a tombstone. Raises ValueError as ``seal``."""
    message, encoded = draft.message, draft.encoded
    if encoded is not None:
        if base.TYPES.get(encoded.type) not in draft.topic.carries:
            raise ValueError(f"{encoded.type} does not belong on {draft.topic.name}")
        return encoded
    if message is None:
        return None
    if type(message) not in draft.topic.carries:
        raise ValueError(f"{type(message).__name__} does not belong on {draft.topic.name}")
    return Encoded(base.type_name(message), base.encode(message))


def deleted_version(record: Record) -> int | None:
    """The last resourceVersion of the object that a tombstone removes; None if the record has none
    or is not a tombstone."""
    return decoding.number(record.headers.get("ce_objectversion", ""))


def decode(record: Record) -> msgspec.Struct | None:
    """The message; None for a tombstone. Raises only UndecodableError."""
    if record.value is None:
        return None
    struct = base.TYPES.get(record.type)
    if struct is None or struct not in record.topic.carries:
        raise record.undecodable(f"type {record.type!r} does not belong on this topic")
    try:
        return base.decode(record.type, record.value)
    except msgspec.DecodeError as error:
        raise record.undecodable(str(error)) from None

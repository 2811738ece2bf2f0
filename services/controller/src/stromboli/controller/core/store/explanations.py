"""Why PodGroups wait, as the scheduler says: the newest of each."""

from typing import NamedTuple

import msgspec

from stromboli.shared import envelope, errors
from stromboli.shared.api import scheduling
from stromboli.shared.messages import scheduling as messages


class Explanation(msgspec.Struct, frozen=True):
    """Why a PodGroup waits, and the id of the record that says so."""

    message: messages.PodGroupExplained
    id: str


class ApplyResult(NamedTuple):
    """What a record changed: whether anything, and why it could not be read (empty: it was)."""

    is_any: bool
    undecodable: str = ""


class Explanations:
    """Folded from their topic; a record costs O(1)."""

    def __init__(self) -> None:
        self._found: dict[str, Explanation] = {}

    def of(self, pod_group: scheduling.PodGroup) -> Explanation | None:
        """Why this very PodGroup waits, None if it does not."""
        found = self._found.get(pod_group.metadata.key)
        if found is None or found.message.pod_group_uid != pod_group.metadata.uid:
            return None
        return found

    def apply(self, record: envelope.Record) -> ApplyResult:
        """Take in a record; its key is the PodGroup's."""
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            self._found.pop(record.key, None)
            return ApplyResult(is_any=True, undecodable=error.reason)
        if isinstance(message, messages.PodGroupExplained):
            self._found[record.key] = Explanation(message, record.id)
            return ApplyResult(is_any=True)
        return ApplyResult(is_any=self._found.pop(record.key, None) is not None)

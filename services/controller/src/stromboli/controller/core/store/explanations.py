"""The scheduler's newest explanation of each pending PodGroup."""

from typing import NamedTuple

import msgspec

from stromboli.shared import envelope, errors
from stromboli.shared.api import scheduling
from stromboli.shared.messages import scheduling as messages


class Explanation(msgspec.Struct, frozen=True):
    """Why a PodGroup is pending, and the id of the record."""

    message: messages.PodGroupExplained
    id: str


class ApplyResult(NamedTuple):
    """Whether a record changed anything, and why it could not be decoded (empty if it could)."""

    is_any: bool
    undecodable: str = ""


class Explanations:
    """The explanations, materialized from the topic. Applying a record costs O(1)."""

    def __init__(self) -> None:
        self._found: dict[str, Explanation] = {}

    def of(self, pod_group: scheduling.PodGroup) -> Explanation | None:
        """The explanation of the PodGroup (of this uid), None if there is none."""
        explanation = self._found.get(pod_group.metadata.key)
        if explanation is None or explanation.message.pod_group_uid != pod_group.metadata.uid:
            return None
        return explanation

    def apply(self, record: envelope.Record) -> ApplyResult:
        """Apply a record; its key is the PodGroup's."""
        try:
            message = envelope.decode(record)
        except errors.UndecodableError as error:
            self._found.pop(record.key, None)
            return ApplyResult(is_any=True, undecodable=error.reason)
        if isinstance(message, messages.PodGroupExplained):
            self._found[record.key] = Explanation(message, record.id)
            return ApplyResult(is_any=True)
        return ApplyResult(is_any=self._found.pop(record.key, None) is not None)

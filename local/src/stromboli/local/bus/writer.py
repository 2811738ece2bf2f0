"""The embedded log's ``Writer``."""

from collections.abc import Mapping

from stromboli.local.bus.log import Line, Log
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port

Sealed = tuple[Mapping[str, str], bytes | None]


class EmbeddedWriter:
    """See ``port.Writer``."""

    def __init__(self, log: Log, service: topics.Service, epoch: int) -> None:
        self._log = log
        self._service = service
        self._epoch = epoch
        self._sequence = 0  # of ``opened``

    @property
    def epoch(self) -> int:
        """Offset of this writer's ``opened``."""
        return self._epoch

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        """Append in order, all or nothing."""
        for draft in drafts:
            if draft.topic.writer not in (None, self._service):
                raise ValueError(f"{draft.topic.name} is written by {draft.topic.writer} alone")
        first = self._sequence + 1
        sealed = [
            envelope.seal(draft, self._service, self._epoch, sequence)
            for sequence, draft in enumerate(drafts, first)
        ]
        for draft, (headers, value) in zip(drafts, sealed, strict=True):
            _check_size(draft, headers, value)
        if not drafts:
            return ()
        self._sequence += len(drafts)
        offsets = await self._log.append(
            [_line(draft, whole) for draft, whole in zip(drafts, sealed, strict=True)]
        )
        return tuple(
            port.Appended(offset, headers["ce_id"])
            for offset, (headers, _) in zip(offsets, sealed, strict=True)
        )


def _line(draft: envelope.Draft, sealed: Sealed) -> Line:
    return Line(draft.topic, draft.key, lambda _: sealed)


def _check_size(draft: envelope.Draft, headers: Mapping[str, str], value: bytes | None) -> None:
    size = len(draft.key.encode()) + len(value or b"")
    size += sum(len(name) + len(text.encode()) for name, text in headers.items())
    if size > topics.RECORD_BYTES:
        what = f"append {draft.key} to {draft.topic.name}"
        raise errors.TooLargeError(what, f"{size} bytes, at most {topics.RECORD_BYTES} are allowed")

"""The writer of the embedded log."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from stromboli.embedded.bus.log import Log, PendingRecord
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import fencing, port
from stromboli.shared.messages import log

Sealed = tuple[Mapping[str, str], bytes | None]


class EmbeddedWriter:
    """Implements ``port.Writer`` for the embedded log."""

    def __init__(
        self,
        log: Log,
        service: topics.Service,
        instance: str,
        epoch: int,
        opened_at: int,
        clock: Callable[[], datetime],
    ) -> None:
        self._log = log
        self._service = service
        self._instance = instance
        self._clock = clock
        self.epoch = epoch
        self.opened_at = opened_at
        self._sequence = 0  # of the last record of this writer
        main = topics.MAIN.get(service)
        self._main = main if main is not None and main.is_fenced else None
        self._main_identity = self._identity_of_main()
        self._own = {it.name: it for it in topics.of(service) if it.is_announced}
        self._announced: dict[str, str] = {}  # topic -> its identity at the announcement

    async def announce(self) -> None:
        """Announce the epoch on all topics but the main one."""
        await self._append(self._announcements())

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        """Append records in order, atomically; return once they are durable. Raises ValueError for
        a topic of another service, TooLargeError, LogLostError."""
        for draft in drafts:
            if draft.topic.writer not in (None, self._service):
                raise ValueError(f"{draft.topic.name} is written only by {draft.topic.writer}")
        if not drafts:
            return ()
        self._check_main()
        announcements = self._announcements()
        stand = await self._append([*announcements, *drafts])
        return stand[len(announcements) :]

    async def _append(self, drafts: Sequence[envelope.Draft]) -> tuple[port.Appended, ...]:
        sealed = [
            envelope.seal(
                draft,
                self._service,
                self.epoch,
                sequence,
                cluster_name=self._log.cluster_name,
            )
            for sequence, draft in enumerate(drafts, self._sequence + 1)
        ]
        for draft, (headers, value) in zip(drafts, sealed, strict=True):
            _check_size(draft, headers, value)
        self._sequence += len(sealed)
        lines = [_line(draft, whole) for draft, whole in zip(drafts, sealed, strict=True)]
        appending = self._log.append(lines)
        # Appends are executed in the order of the calls, so later ones need not announce again.
        names = [each.topic.name for each in drafts if each.key == log.ANNOUNCED_KEY]
        self._announced |= self._log.topic_ids(names)
        return tuple(
            port.Appended(offset, headers["ce_id"])
            for offset, (headers, _) in zip(await appending, sealed, strict=True)
        )

    def _announcements(self) -> list[envelope.Draft]:
        """Return announcements for topics that are new to this writer or were recreated."""
        topic_ids = self._log.topic_ids(list(self._own))
        wanted = [
            own for name, own in self._own.items() if self._announced.get(name) != topic_ids[name]
        ]
        return fencing.announcements(wanted, self._service, self._instance, self._clock())

    def _check_main(self) -> None:
        if self._main is not None and self._identity_of_main() != self._main_identity:
            raise errors.LogLostError(
                f"append as {self._service}", f"{self._main.name} was recreated"
            )

    def _identity_of_main(self) -> str:
        """The identity of the main topic; empty if no other writer can replace this one."""
        main = self._main
        return "" if main is None else self._log.topic_ids([main.name])[main.name]


def _line(draft: envelope.Draft, sealed: Sealed) -> PendingRecord:
    return PendingRecord(draft.topic, draft.key, lambda _: sealed)


def _check_size(draft: envelope.Draft, headers: Mapping[str, str], value: bytes | None) -> None:
    size = len(draft.key.encode()) + len(value or b"")
    size += sum(len(name) + len(text.encode()) for name, text in headers.items())
    if size > topics.RECORD_BYTES:
        what = f"append {draft.key} to {draft.topic.name}"
        raise errors.TooLargeError(what, f"{size} bytes, at most {topics.RECORD_BYTES} are allowed")

"""The scheduler's newest forecast of when each pending PodGroup starts."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from stromboli.shared.api.views.expected_start import ExpectedStart
from stromboli.shared.messages.scheduling import StartsForecast

SHOWN_FOR = timedelta(hours=1)
"""An older forecast is not shown: the scheduler no longer forecasts this PodGroup."""


class StartForecasts:
    """The forecast, materialized from its chunks. Applying a chunk costs O(its PodGroups)."""

    def __init__(self) -> None:
        self._scopes: dict[str, dict[int, dict[str, ExpectedStart]]] = {}

    def put(self, message: StartsForecast) -> None:
        """Store a chunk in place of its predecessor, and drop chunks that its scope no longer
        has."""
        chunks = self._scopes.setdefault(message.scope, {})
        chunks[message.chunk] = {
            each.pod_group: ExpectedStart(
                pod_group=each.pod_group,
                answer=each.answer,
                at=message.at,
                draws=message.draws,
                p10=each.p10,
                p50=each.p50,
                p90=each.p90,
            )
            for each in message.starts
        }
        for number in [each for each in chunks if each >= message.chunks]:
            del chunks[number]

    def clear(self) -> None:
        """Drop all chunks."""
        self._scopes.clear()

    def of(self, pod_group: str, now: datetime) -> ExpectedStart | None:
        """The newest expected start of a PodGroup. O(chunks)."""
        starts = [chunk[pod_group] for chunk in self._chunks() if pod_group in chunk]
        newest = max(starts, key=lambda it: it.at, default=None)
        return None if newest is None or now - newest.at > SHOWN_FOR else newest

    def pod_groups(self) -> list[str]:
        """The PodGroups with an expected start, sorted."""
        return sorted({key for chunk in self._chunks() for key in chunk})

    def _chunks(self) -> Iterator[dict[str, ExpectedStart]]:
        for chunks in self._scopes.values():
            yield from chunks.values()

"""Counts pods by the affinity terms that they carry and by node; finds the terms that may select a
pod."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from stromboli.scheduler.core.cluster import label_index, row_counts
from stromboli.scheduler.core.model import pod_terms

K = TypeVar("K")


class CarriedTerms(row_counts.CountsBy[K]):
    """Pods by term and row. ``matcher_of``: which pods a term selects."""

    def __init__(self, matcher_of: Callable[[K], pod_terms.Matcher]) -> None:
        super().__init__()
        self.matcher_of = matcher_of
        self._index: label_index.SelectorIndex[K] = label_index.SelectorIndex()

    def candidates(self, labels: Mapping[str, str]) -> Iterator[K]:
        """Terms that may select a pod with these labels, each once. O(candidates)."""
        return self._index.candidates(labels)

    def _added(self, key: K) -> None:
        self._index.add(key, self.matcher_of(key))

    def _dropped(self, key: K) -> None:
        self._index.discard(key, self.matcher_of(key))


class SessionCarriedTerms(row_counts.SessionCountsBy[K]):
    """The model's terms plus the changes of one session, which leave the model unchanged."""

    def __init__(self, known: CarriedTerms[K], size: int) -> None:
        super().__init__(known, size)
        self._terms = known
        self._new_index: label_index.SelectorIndex[K] = label_index.SelectorIndex()

    def candidates(self, labels: Mapping[str, str]) -> Iterator[K]:
        """Terms that may select a pod with these labels, each once. O(candidates)."""
        yield from self._terms.candidates(labels)
        yield from self._new_index.candidates(labels)

    def _added(self, key: K) -> None:
        self._new_index.add(key, self._terms.matcher_of(key))

"""Finds the selectors that may select a pod, and the pods that a selector may select, by a label.

Users decide how many different terms and classes of pods there are. With a thousand of each,
comparing every term with every class would take seconds in each session. A selector that requires
one of some values for a label (``In``, as every ``matchLabels`` does) selects only pods with one of
these label values. The first such requirement of a selector is its *anchor*. Results are
candidates, which the caller must check. A selector without an anchor is a candidate for every pod.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from stromboli.scheduler.core.cluster.pod_kinds import PodKind
from stromboli.scheduler.core.model import pod_terms

K = TypeVar("K")
Label = tuple[str, str]
"""Key and value."""


def anchor(matcher: pod_terms.Matcher) -> frozenset[Label] | None:
    """The labels of the anchor: each selected pod has one of them. None without an anchor."""
    if matcher.selector is None:  # it selects no pod
        return frozenset()
    for key, operator, values in matcher.selector.requirements:
        if operator == "In":
            return frozenset((key, value) for value in values)
    return None


class SelectorIndex(Generic[K]):
    """Keys, such as terms, by the anchor of their selectors. O(values of the anchor) to change."""

    def __init__(self) -> None:
        self._by_label: dict[Label, dict[K, None]] = {}
        self._others: dict[K, None] = {}

    def add(self, key: K, matcher: pod_terms.Matcher) -> None:
        """Add a key."""
        labels = anchor(matcher)
        if labels is None:
            self._others[key] = None
            return
        for label in labels:
            self._by_label.setdefault(label, {})[key] = None

    def discard(self, key: K, matcher: pod_terms.Matcher) -> None:
        """Remove a key that was added with this matcher."""
        self._others.pop(key, None)
        for label in anchor(matcher) or ():
            _discard(self._by_label, label, key)

    def clear(self) -> None:
        """Remove all keys."""
        self._by_label.clear()
        self._others.clear()

    def candidates(self, labels: Mapping[str, str]) -> Iterator[K]:
        """Keys whose selectors may select a pod with these labels, each once."""
        for label in labels.items():
            yield from self._by_label.get(label, ())
        yield from self._others


class KindIndex:
    """Kinds of pods by label. O(labels) to change."""

    def __init__(self) -> None:
        self._kinds: dict[PodKind, None] = {}
        self._by_label: dict[Label, dict[PodKind, None]] = {}

    def add(self, kind: PodKind) -> None:
        """Add a kind under each of its labels; without effect if it is there."""
        self._kinds[kind] = None
        for label in kind.task_class.labels.items():
            self._by_label.setdefault(label, {})[kind] = None

    def discard(self, kind: PodKind) -> None:
        """Remove a kind, if it is there."""
        self._kinds.pop(kind, None)
        for label in kind.task_class.labels.items():
            _discard(self._by_label, label, kind)

    def candidates(self, matchers: Iterable[pod_terms.Matcher]) -> Iterator[PodKind]:
        """Kinds that all of these matchers may select, each once."""
        anchors = [labels for labels in map(anchor, matchers) if labels is not None]
        if not anchors:
            return iter(self._kinds)
        first = min(anchors, key=len)
        # A pod has one value for a key, so no kind is found twice.
        return (kind for label in sorted(first) for kind in self._by_label.get(label, ()))


def _discard(index: dict[Label, dict[K, None]], label: Label, key: K) -> None:
    entries = index.get(label)
    if entries is not None:
        entries.pop(key, None)
        if not entries:
            del index[label]

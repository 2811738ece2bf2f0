"""Which pods lie where, counted for those who want to be near pods or away from them.

A pod's terms are compiled once per class of tasks into hashable ``Term``s. Counts are vectors over
nodes, made at the first question and kept up to date by every placement after it: placing a pod
costs as many additions as there are terms that mean it, whatever the number of nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stromboli.scheduler.core.framework import model, nodes
from stromboli.shared.api import core

Counts: TypeAlias = npt.NDArray[np.int64]
"""Pods per node."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace carries."""


class Selector(NamedTuple):
    """A label selector: all of (key, operator, values) must hold."""

    requirements: tuple[tuple[str, str, tuple[str, ...]], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels are meant. An operator that nobody knows means none."""
        return all(_holds(labels.get(key), how, of) for key, how, of in self.requirements)


class Matcher(NamedTuple):
    """Which pods a term means. ``alive``: only those that are not being deleted."""

    selector: Selector | None
    namespaces: tuple[str, ...]
    namespace_selector: Selector | None = None
    alive: bool = False


class Term(NamedTuple):
    """Pods, and the node label whose equal values make two nodes one place."""

    topology_key: str
    pods: Matcher


class Wishes(NamedTuple):
    """What a class of pods wants of its neighbours. ``likes``: (weight, term), negative to shun."""

    near: tuple[Term, ...] = ()
    away: tuple[Term, ...] = ()
    likes: tuple[tuple[int, Term], ...] = ()


_NO_WISHES = Wishes()


class Placed(NamedTuple):
    """Pods that no matcher can tell apart."""

    task_class: model.TaskClass
    alive: bool


class Board:
    """The pods on the nodes of a session, foreign ones and promises included.

    ``put`` and ``take`` follow placements and evictions. Rows are those of ``nodes.Nodes``.
    """

    def __init__(
        self, table: nodes.Nodes, namespace_labels: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.table = table
        self.carried_away: dict[Term, Counts] = {}
        """Term of anti-affinity -> pods that carry it, per node."""
        self.carried_likes: dict[tuple[int, Term], Counts] = {}
        self._namespace_labels = namespace_labels
        self._wishes: dict[int, Wishes] = {}
        self._placed: dict[Placed, dict[int, int]] = {}
        self._tallies: dict[tuple[Matcher, ...], Counts] = {}
        self._followed: dict[Placed, list[Counts]] = {}
        """Every vector in which pods of that kind are counted."""
        for row, tasks in enumerate(table.tasks):
            for task in tasks.values():
                self._count(task, row, 1)

    def put(self, tasks: Sequence[model.Task]) -> None:
        """The tasks lie on their nodes."""
        self._count_all(tasks, 1)

    def take(self, tasks: Sequence[model.Task]) -> None:
        """They do not any more, or are on their way out."""
        self._count_all(tasks, -1)

    def wishes(self, task_class: model.TaskClass) -> Wishes:
        """What pods of the class want of their neighbours."""
        found = self._wishes.get(task_class.number)
        if found is None:
            found = self._wishes[task_class.number] = _wishes(task_class)
        return found

    def counts(self, *matchers: Matcher) -> Counts:
        """Pods per node that all matchers mean. The first question costs O(classes + pods)."""
        tally = self._tallies.get(matchers)
        if tally is None:
            tally = self._tallies[matchers] = np.zeros(len(self.table), np.int64)
            for placed, rows in self._placed.items():
                if self._means(matchers, placed):
                    self._followed[placed].append(tally)
                    for row, count in rows.items():
                        tally[row] += count
        return tally

    def means(self, matcher: Matcher, task_class: model.TaskClass) -> bool:
        """Whether pods of the class, alive, are meant."""
        return self._means((matcher,), Placed(task_class, alive=True))

    def places(self, key: str) -> tuple[npt.NDArray[np.int32], int]:
        """Each node's place under a topology key (-1 for none), and how many places there are."""
        codes, values = self.table.labelled.label_codes(key)
        return codes, len(values)

    def by_place(self, key: str, counts: Counts) -> Counts:
        """For every node the sum over all nodes of its place; 0 for nodes without a place."""
        codes, size = self.places(key)
        has = codes >= 0
        # One slot more than places: -1, a node without a place, reads the last, which stays 0.
        sums = np.bincount(codes[has], counts[has], size + 1).astype(np.int64)
        result: Counts = sums[codes]
        return result

    def _count_all(self, tasks: Sequence[model.Task], change: int) -> None:
        for task in tasks:
            row = self.table.rows.get(task.node)
            if row is not None:
                self._count(task, row, change)

    def _count(self, task: model.Task, row: int, change: int) -> None:
        placed = Placed(task.task_class, task.pod.metadata.deletion_timestamp is None)
        followed = self._followed.get(placed)
        if followed is None:
            followed = self._followed[placed] = self._vectors(placed)
            self._placed[placed] = {}
        rows = self._placed[placed]
        rows[row] = rows.get(row, 0) + change
        for counts in followed:
            counts[row] += change

    def _vectors(self, placed: Placed) -> list[Counts]:
        size = len(self.table)
        wishes = self.wishes(placed.task_class)
        vectors = [
            tally for matchers, tally in self._tallies.items() if self._means(matchers, placed)
        ]
        vectors.extend(
            self.carried_away.setdefault(term, np.zeros(size, np.int64)) for term in wishes.away
        )
        vectors.extend(
            self.carried_likes.setdefault(like, np.zeros(size, np.int64)) for like in wishes.likes
        )
        return vectors

    def _means(self, matchers: Iterable[Matcher], placed: Placed) -> bool:
        return all(self._matches(matcher, placed) for matcher in matchers)

    def _matches(self, matcher: Matcher, placed: Placed) -> bool:
        if matcher.selector is None or (matcher.alive and not placed.alive):
            return False
        namespace = placed.task_class.namespace
        if namespace not in matcher.namespaces:
            if matcher.namespace_selector is None:
                return False
            labels = {NAMESPACE_NAME: namespace, **self._namespace_labels.get(namespace, {})}
            if not matcher.namespace_selector.matches(labels):
                return False
        return matcher.selector.matches(placed.task_class.labels)


def selector(
    given: core.LabelSelector | None,
    labels: Mapping[str, str],
    same: Iterable[str] = (),
    other: Iterable[str] = (),
) -> Selector | None:
    """A selector, narrowed to pods whose labels ``same`` equal ``labels`` and ``other`` differ.

    None for an absent one, which means no pod. Keys that ``labels`` lacks do not narrow.
    """
    if given is None:
        return None
    requirements: list[tuple[str, str, tuple[str, ...]]] = [
        (key, "In", (value,)) for key, value in (given.match_labels or {}).items()
    ]
    requirements += [
        (each.key, each.operator, tuple(sorted(each.values))) for each in given.match_expressions
    ]
    requirements += [(key, "In", (labels[key],)) for key in same if key in labels]
    requirements += [(key, "NotIn", (labels[key],)) for key in other if key in labels]
    return Selector(tuple(sorted(set(requirements))))


def _wishes(task_class: model.TaskClass) -> Wishes:
    affinity = task_class.spec.affinity
    if affinity is None or not (affinity.pod_affinity or affinity.pod_anti_affinity):
        return _NO_WISHES
    near = affinity.pod_affinity or core.PodAffinity()
    away = affinity.pod_anti_affinity or core.PodAffinity()

    def liked(wished: core.PodAffinity, sign: int) -> list[tuple[int, Term]]:
        return [
            (sign * each.weight, _term(each.pod_affinity_term, task_class))
            for each in wished.preferred_during_scheduling_ignored_during_execution
        ]

    return Wishes(
        _terms(near.required_during_scheduling_ignored_during_execution, task_class),
        _terms(away.required_during_scheduling_ignored_during_execution, task_class),
        (*liked(near, 1), *liked(away, -1)),
    )


def _terms(given: Iterable[core.PodAffinityTerm], task_class: model.TaskClass) -> tuple[Term, ...]:
    return tuple(_term(each, task_class) for each in given)


def _term(given: core.PodAffinityTerm, task_class: model.TaskClass) -> Term:
    namespaces = tuple(sorted(given.namespaces))
    if not namespaces and given.namespace_selector is None:
        namespaces = (task_class.namespace,)
    pods = selector(
        given.label_selector,
        task_class.labels,
        given.match_label_keys,
        given.mismatch_label_keys,
    )
    return Term(
        given.topology_key, Matcher(pods, namespaces, selector(given.namespace_selector, {}))
    )


def _holds(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False

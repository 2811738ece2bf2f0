"""Candidates by label: every selector that selects a pod is among them, and few others."""

import sys
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bench import carried_terms, session
from stromboli.scheduler.core.cluster import label_index, pod_kinds
from stromboli.scheduler.core.model import pod_terms, requirements
from stromboli.scheduler.core.model.entities import TaskClass
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

KEYS, VALUES = ("app", "tier"), ("a", "b", "c")
SHAPE = requirements.RequirementsIndex().of(builders.make_pod().spec)
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
REQUIREMENTS = st.tuples(
    st.sampled_from(KEYS),
    st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "odd")),
    st.lists(st.sampled_from(VALUES), max_size=3).map(tuple),
)
SELECTORS = st.none() | st.lists(REQUIREMENTS, max_size=3).map(
    lambda found: pod_terms.Selector(tuple(found))
)
MATCHERS = st.builds(pod_terms.Matcher, SELECTORS, st.sampled_from([(), ("default",), ("other",)]))


def kind(labels: dict[str, str], number: int = 0) -> pod_kinds.PodKind:
    """A kind of pods in the namespace ``default``."""
    task_class = TaskClass(
        number=number,
        shape=SHAPE,
        namespace="default",
        labels=labels,
        affinity=None,
        spread=(),
        ports=(),
        images=(),
        claims=(),
        has_own_claims=False,
    )
    return pod_kinds.PodKind(task_class, alive=True)


def selects(matcher: pod_terms.Matcher, labels: dict[str, str]) -> bool:
    return matcher.matches_pod("default", labels, {}, alive=True)


@depth.examples(200)
@given(st.lists(MATCHERS, unique=True, max_size=8), st.data(), LABELS)
def test_every_selector_that_selects_a_pod_is_a_candidate_once(
    matchers: list[pod_terms.Matcher], data: st.DataObject, labels: dict[str, str]
) -> None:
    """Also after others were removed."""
    index: label_index.SelectorIndex[pod_terms.Matcher] = label_index.SelectorIndex()
    for matcher in matchers:
        index.add(matcher, matcher)
    gone = data.draw(st.sets(st.sampled_from(matchers))) if matchers else set()
    for matcher in gone:
        index.discard(matcher, matcher)
    found = list(index.candidates(labels))
    assert len(found) == len(set(found))
    kept = set(matchers) - gone
    assert set(found) <= kept
    assert {it for it in kept if selects(it, labels)} <= set(found)


@depth.examples(200)
@given(
    st.lists(LABELS, max_size=6), st.lists(MATCHERS, min_size=1, max_size=2), st.sets(st.integers())
)
def test_every_kind_that_is_selected_is_a_candidate_once(
    pods: list[dict[str, str]], matchers: list[pod_terms.Matcher], gone: set[int]
) -> None:
    index = label_index.KindIndex()
    kinds = [kind(labels, at) for at, labels in enumerate(pods)]
    for each in kinds:
        index.add(each)
    for at in gone & set(range(len(kinds))):
        index.discard(kinds[at])
    kept = [each for at, each in enumerate(kinds) if at not in gone]
    found = list(index.candidates(matchers))
    assert len(found) == len(set(found))
    for each in kept:
        is_selected = all(selects(it, dict(each.task_class.labels)) for it in matchers)
        assert each in found or not is_selected
    assert set(found) <= set(kept)


def test_a_pod_is_compared_with_selectors_of_its_own_labels_only() -> None:
    """A thousand classes and five hundred terms were half a million comparisons a session."""
    index: label_index.SelectorIndex[int] = label_index.SelectorIndex()
    for at in range(500):
        selector = pod_terms.Selector((("app", "In", (f"a{at}",)),))
        index.add(at, pod_terms.Matcher(selector, ("default",)))
    assert list(index.candidates({"app": "a7", "tier": "b"})) == [7]
    assert list(index.candidates({"app": "other"})) == []


def comparisons(classes: int) -> int:
    """How often a session compares a selector with a class, with a term for each class."""
    found = 0
    code = pod_terms.Matcher.matches_pod.__code__

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal found
        found += event == "call" and frame.f_code is code

    given_cluster = carried_terms.build_cluster(nodes=200, classes=classes, terms=classes)
    sys.setprofile(count)
    try:
        timed = session.run_timed(given_cluster)
    finally:
        sys.setprofile(None)
    assert len(timed.closed.decisions.binds) == classes
    return found


def test_a_session_compares_selectors_in_proportion_to_the_classes() -> None:
    """Not to classes x terms: 20 and 100 of each are five times as many comparisons, not 25."""
    assert comparisons(100) <= 6 * comparisons(20)

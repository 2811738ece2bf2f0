"""On random small clusters the scheduler decides as Volcano does, except for named reasons.

The cases are outside the repository, beside the recorded sessions (``test_scheduler``). Volcano
chooses at random among equal nodes, so each case has the outcomes of several runs, and one of them
must be met. If none is met, an executable rule of ``deviation_rules`` explains every difference to
the nearest one.
"""

from collections import Counter
from typing import NamedTuple

import pytest

from tests.conformance import deviation_rules, random_clusters
from tests.conformance import test_scheduler as recorded
from tests.conformance.random_clusters import Case, Difference, Outcome

FOLDER = recorded.SHARED / "conformance" / "random"
CASES = 699
AGREEING = 686
"""Cases whose binds, evictions and phases equal those of one run: 98.0 %. Rules list the others
(``Rule.decided``) and the cost of agreement.
"""


class Compared(NamedTuple):
    """A case, our outcome, the nearest one of Volcano, and the differences that rules explain."""

    case: Case
    ours: Outcome
    theirs: Outcome
    found: frozenset[Difference]
    explained: dict[str, frozenset[Difference]]

    @property
    def agrees(self) -> bool:
        """Only nominations differ."""
        return all(each.field == random_clusters.NOMINATIONS for each in self.found)

    @property
    def unexplained(self) -> frozenset[Difference]:
        """Differences that no rule explains."""
        return self.found.difference(*self.explained.values())

    @property
    def distance(self) -> tuple[bool, int, int]:
        """A sort key: the nearest run has the least."""
        return (not self.agrees, len(self.unexplained), len(self.found))


def compare(case: Case, ours: Outcome, theirs: Outcome) -> Compared:
    """Our outcome and that of one run."""
    found = random_clusters.differences(case, ours, theirs)
    explained = {
        rule.name: frozenset(rule.explains(case, ours, theirs, found) & found)
        for rule in deviation_rules.RULES
        if found
    }
    return Compared(case, ours, theirs, frozenset(found), explained)


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    """All cases, each with the run that is nearest to our outcome."""
    if not FOLDER.is_dir():
        pytest.skip(f"no random clusters in {FOLDER}; STROM_SHARED names their folder")
    nearest = []
    for case in random_clusters.read(FOLDER / "cases.jsonl.gz"):
        ours = case.decide()
        runs = [compare(case, ours, theirs) for theirs in case.outcomes]
        nearest.append(min(runs, key=lambda each: each.distance))
    return nearest


def test_binds_evictions_and_phases_agree_with_one_run(compared: list[Compared]) -> None:
    """All but the cases that rules name, each under one rule that explains it alone."""
    assert len(compared) == CASES
    differing = {each.case.name for each in compared if not each.agrees}
    named = [case for rule in deviation_rules.RULES for case in rule.decided]
    assert sorted(differing) == sorted(named)
    assert len(named) == CASES - AGREEING


@pytest.mark.parametrize("rule", deviation_rules.RULES, ids=lambda rule: rule.name)
def test_a_rule_explains_all_that_is_decided_otherwise_in_the_cases_it_names(
    compared: list[Compared], rule: deviation_rules.Rule
) -> None:
    """Every difference in binds, evictions and phases of these cases."""
    for each in compared:
        if each.case.name in rule.decided:
            decided = {found for found in each.found if found.field != random_clusters.NOMINATIONS}
            assert decided <= each.explained[rule.name], each.case.name


def test_every_difference_is_explained_by_a_rule(compared: list[Compared]) -> None:
    """Nominations included. A difference without a rule is a defect, or a rule is missing."""
    left = {each.case.name: sorted(each.unexplained) for each in compared if each.unexplained}
    assert left == {}


def test_each_rule_explains_its_declared_number_of_cases(compared: list[Compared]) -> None:
    """A rule that explains more than before may hide a defect; one without cases is removed."""
    counts = Counter(name for each in compared for name, found in each.explained.items() if found)
    assert counts == {rule.name: rule.cases for rule in deviation_rules.RULES}


def test_the_documentation_lists_each_rule_with_its_cases() -> None:
    """The last table of docs/deviations.md."""
    text = (recorded.ROOT / "docs" / "deviations.md").read_text()
    rows = text.partition("| rule | cases |")[2].splitlines()[2:]
    listed = [tuple(part.strip() for part in row.split("|")[1:5]) for row in rows if row]
    assert listed == [
        (rule.name, str(rule.cases), str(len(rule.decided)), rule.agreeing)
        for rule in deviation_rules.RULES
    ]


@pytest.mark.parametrize("rule", deviation_rules.RULES, ids=lambda rule: rule.name)
def test_no_rule_applies_where_outcomes_agree(
    compared: list[Compared], rule: deviation_rules.Rule
) -> None:
    """In cases without differences no rule explains any fact: rules depend on numbers, not on case
    names."""
    for each in compared:
        if not each.found:
            facts = {
                Difference(field, gang)
                for field in random_clusters.FIELDS
                for gang in each.case.gangs
            }
            explained = rule.explains(each.case, each.ours, each.theirs, facts)
            assert explained == set(), each.case.name

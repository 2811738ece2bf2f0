"""The rules themselves, asked about every case."""

import pytest

from stromboli.shared import network
from stromboli.shared.api import kinds
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.testkit import admission_cases, admission_others
from stromboli.testkit.admission_cases import Case

POLICY = review.Policy(scheduler_names=("volcano",), plugins=job_plugins.OWN, max_queue_depth=5)


def world() -> review.Known:
    found: dict[str, Queue] = {}
    for document in admission_cases.WORLD:
        read = kinds.QUEUES.decode(patch.encoded(document))
        found[read.metadata.name] = read
    rack = kinds.HYPER_NODES.decode(patch.encoded(admission_others.RACK))
    return review.Known(queues=found, tiers=network.tiers([rack]))


def refused(case: Case) -> list[str]:
    document = case.document
    if case.operation == "CREATE":
        added = review.completed(case.kind, document, POLICY, known=world())
        document = patch.applied(document, added)
    found = review.violations(case.kind, case.operation, document, case.before, world(), POLICY)
    return [violation.path for violation in found]


@pytest.mark.parametrize("case", admission_cases.CASES, ids=str)
def test_a_case_is_judged_as_it_says(case: Case) -> None:
    assert sorted(set(refused(case))) == ([case.refused] if case.refused else [])


@pytest.mark.parametrize("case", [case for case in admission_cases.CASES if case.refused], ids=str)
def test_a_refusal_says_what_is_wrong(case: Case) -> None:
    for violation in review.violations(
        case.kind, case.operation, case.document, case.before, world(), POLICY
    ):
        assert violation.reason

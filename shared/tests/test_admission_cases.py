"""The rules themselves with every case."""

import pytest

from stromboli.shared import network_topology
from stromboli.shared.api import kinds
from stromboli.shared.api.scheduling import Queue
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import patch, review
from stromboli.testkit.admission_cases import other_kinds, rules
from stromboli.testkit.admission_cases.rules import Case

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano",), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)


def model() -> review.ClusterContext:
    queues: dict[str, Queue] = {}
    for document in rules.EXISTING_OBJECTS:
        read = kinds.QUEUES.decode(patch.encoded(document))
        queues[read.metadata.name] = read
    rack = kinds.HYPER_NODES.decode(patch.encoded(other_kinds.RACK))
    return review.ClusterContext(queues=queues, tiers=network_topology.tiers([rack]))


def refused(case: Case) -> list[str]:
    document = case.document
    if case.operation == "CREATE":
        added = review.default_patch(case.kind, document, POLICY, known=model())
        document = patch.applied(document, added)
    violations = review.violations(
        case.kind, case.operation, document, case.before, model(), POLICY
    )
    return [violation.path for violation in violations]


@pytest.mark.parametrize("case", rules.CASES, ids=str)
def test_a_case_has_its_expected_result(case: Case) -> None:
    assert sorted(set(refused(case))) == ([case.refused] if case.refused else [])


@pytest.mark.parametrize("case", [case for case in rules.CASES if case.refused], ids=str)
def test_a_rejection_names_the_violation(case: Case) -> None:
    for violation in review.violations(
        case.kind, case.operation, case.document, case.before, model(), POLICY
    ):
        assert violation.reason

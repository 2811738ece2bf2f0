"""Updates of objects that violate a rule already: they were stored before it existed, or while
admission was unavailable."""

import copy

import pytest

from stromboli.shared.api import kinds
from stromboli.shared.jobspec import job_plugins, policies
from stromboli.shared.jobspec.validation import review
from stromboli.testkit.admission_cases import rules
from stromboli.testkit.admission_cases.manifests import Document
from stromboli.testkit.admission_cases.rules import Case

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano", "stromboli"), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)
KNOWN = review.ClusterContext()
STORED = [case for case in rules.CASES if case.refused and case.operation == "CREATE"]


def terminating(case: Case) -> Document:
    """The stored object: a user deleted it, and the garbage collector deletes what it owns."""
    stored = copy.deepcopy(case.document)
    stored["metadata"] |= {
        "uid": "u1",
        "resourceVersion": "7",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["foregroundDeletion"],
    }
    return stored


@pytest.mark.parametrize("case", STORED, ids=str)
def test_the_finalizers_of_an_invalid_object_are_removable(case: Case) -> None:
    """Otherwise it could not be deleted while admission is available."""
    before = terminating(case)
    after = copy.deepcopy(before)
    after["metadata"]["finalizers"] = []
    assert review.violations(case.kind, "UPDATE", after, before, KNOWN, POLICY) == ()


@pytest.mark.parametrize("case", [case for case in STORED if case.kind == kinds.JOB_FLOWS], ids=str)
def test_a_changed_spec_is_validated_as_a_whole(case: Case) -> None:
    before = terminating(case)
    after = copy.deepcopy(before)
    after["spec"]["jobRetainPolicy"] = "delete"
    violations = review.violations(case.kind, "UPDATE", after, before, KNOWN, POLICY)
    assert case.refused in {it.path for it in violations}


def test_what_an_update_of_the_metadata_adds_is_validated() -> None:
    case = next(case for case in STORED if case.kind == kinds.JOB_FLOWS)
    before = terminating(case)
    after = copy.deepcopy(before)
    after["metadata"]["labels"] = {"team": 7}
    (violation,) = review.violations(case.kind, "UPDATE", after, before, KNOWN, POLICY)
    assert violation.path.startswith("metadata.labels")


@pytest.mark.parametrize("plural", [path.stem for path in policies.paths()])
def test_a_policy_on_updates_is_evaluated_for_changed_fields_only(plural: str) -> None:
    validation = policies.documents(plural)[0]["spec"]
    (rule,) = validation["matchConstraints"]["resourceRules"]
    conditions = {it["name"]: it["expression"] for it in validation["matchConditions"]}
    assert ("changed" in conditions) == ("UPDATE" in rule["operations"])

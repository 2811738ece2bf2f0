"""Beside another system of the same API groups: its objects are neither defaulted nor rejected, and
objects of Stromboli are always validated.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from stromboli.shared import keys
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec import job_plugins
from stromboli.shared.jobspec.validation import review
from stromboli.testkit.admission_cases import manifests, rules
from stromboli.testkit.admission_cases.rules import Case

POLICY = review.AdmissionPolicy(
    scheduler_names=("volcano", "stromboli"), plugins=job_plugins.BUILT_IN, max_queue_depth=5
)
CLAIMED = review.ClusterContext(claimed=frozenset({"volcano"}))
"""Another system claims one of our scheduler names."""
APART = review.ClusterContext(claimed=frozenset({"other"}))
"""Another system acts under a name of its own."""
REFUSED = [case for case in rules.CASES if case.refused and case.in_cel]
NAMELESS = (kinds.QUEUES, kinds.POD_GROUPS, kinds.JOB_FLOWS, kinds.HYPER_NODES, kinds.COMMANDS)


def renamed(kind: Kind[Any], document: Any, scheduler: str) -> Any:
    """The object as one of that scheduler."""
    made = msgspec.json.decode(msgspec.json.encode(document))
    spec = made["spec"]["jobTemplate"]["spec"] if kind == kinds.CRON_JOBS else made["spec"]
    spec["schedulerName"] = scheduler
    return made


def said(case: Case, known: review.ClusterContext, scheduler: str = "") -> set[str]:
    """The paths that are refused."""
    document, before = case.document, case.before
    if scheduler:
        document = renamed(case.kind, document, scheduler)
        before = before and renamed(case.kind, before, scheduler)
    violations = review.violations(case.kind, case.operation, document, before, known, POLICY)
    return {violation.path for violation in violations}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_objects_of_another_system_are_not_rejected(case: Case) -> None:
    """Nor objects without a scheduler name: Stromboli takes no action meanwhile."""
    if case.kind in (kinds.JOBS, kinds.CRON_JOBS, kinds.PODS):
        if case.refused != "spec.schedulerName":
            assert said(case, CLAIMED, "volcano") == set()
    elif case.kind == kinds.ADVANCE_RESERVATIONS:
        assert case.refused in said(case, CLAIMED)  # No other system has this kind.
    else:
        assert case.kind in NAMELESS
        assert said(case, CLAIMED) == set()


@pytest.mark.parametrize(
    "case", [case for case in REFUSED if case.kind in (kinds.JOBS, kinds.CRON_JOBS)], ids=str
)
def test_invalid_objects_of_stromboli_are_rejected(case: Case) -> None:
    """Under a name that no other system claims, and for all objects when the other
    system is gone.
    """
    if case.refused != "spec.schedulerName":
        assert case.refused in said(case, CLAIMED, "stromboli")
        assert case.refused in said(case, APART, "stromboli")


@pytest.mark.parametrize("case", [case for case in REFUSED if case.kind in NAMELESS], ids=str)
def test_systems_with_different_names_share_objects_without_a_name(case: Case) -> None:
    assert said(case, APART) == said(case, review.ClusterContext())
    assert said(case, APART)


@pytest.mark.parametrize(
    ("scheduler", "known", "is_completed"),
    [
        ("", review.ClusterContext(), True),
        ("", CLAIMED, False),
        ("", APART, False),
        ("stromboli", CLAIMED, True),
        ("volcano", CLAIMED, False),
        ("volcano", APART, True),
    ],
)
def test_a_job_without_a_scheduler_name_is_ours_only_without_another_system(
    scheduler: str, known: review.ClusterContext, is_completed: bool
) -> None:
    """Its author meant the system that was running."""
    document: Mapping[str, Any] = manifests.job(schedulerName=scheduler, minAvailable=0)
    added = review.default_patch(kinds.JOBS, dict(document), POLICY, "trace", known)
    assert bool(added) == is_completed


@pytest.mark.parametrize("kind", [kinds.QUEUES, kinds.POD_GROUPS])
def test_shared_kinds_are_defaulted_by_the_acting_system(kind: Kind[Any]) -> None:
    bare = manifests.bare_object(kind, "bare", spec={})
    if kind == kinds.POD_GROUPS:
        bare["spec"]["queue"] = "default"
    space = core.Namespace(
        metadata=meta.ObjectMeta(name="default", annotations={keys.NAMESPACE_QUEUE: "team"})
    )
    apart, claimed = (msgspec.structs.replace(known, namespace=space) for known in (APART, CLAIMED))
    assert review.default_patch(kind, bare, POLICY, known=apart)
    assert review.default_patch(kind, bare, POLICY, known=claimed) == ()


def test_a_job_cannot_change_to_another_scheduler() -> None:
    """Else its rest would be changed unchecked on the way."""
    before = manifests.job(schedulerName="stromboli")
    after = manifests.job(schedulerName="volcano", maxRetry=9)
    violations = review.violations(kinds.JOBS, "UPDATE", after, before, CLAIMED, POLICY)
    assert {violation.path for violation in violations} == {"spec.schedulerName", "spec.maxRetry"}

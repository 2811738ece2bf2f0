"""Jobs that were created while the webhook was down are validated by the same rules."""

import msgspec
import pytest

from stromboli.controller.core.pods import pods, revalidation
from stromboli.shared.api import batch, kinds
from stromboli.testkit.admission_cases import rules
from stromboli.testkit.admission_cases.rules import Case

CASES = [case for case in rules.CASES if case.kind == kinds.JOBS and case.operation == "CREATE"]


def read(case: Case, status: batch.JobStatus | None = None) -> batch.Job:
    found = kinds.JOBS.decode(msgspec.json.encode(case.document))
    meta = msgspec.structs.replace(found.metadata, namespace="default", uid="u")
    return msgspec.structs.replace(found, metadata=meta, status=status or batch.JobStatus())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_job_is_refused_again_for_what_is_wrong_in_itself(case: Case) -> None:
    """Its queue, its plugins and the existing HyperNodes are checked elsewhere."""
    elsewhere = case.refused == "spec.queue" or case.refused.startswith("spec.plugins")
    elsewhere |= case.refused.endswith("networkTopology") and not case.in_cel
    paths = {violation.path for violation in revalidation.refusals(read(case))}
    assert paths == ({case.refused} - {""} if not elsewhere else set())


def test_no_pod_is_created_for_an_invalid_job() -> None:
    wrong = next(case for case in CASES if case.refused == "spec.minAvailable")
    (obstacle,) = pods.blockers(read(wrong))
    assert obstacle.reason == "Refused"
    assert "spec.minAvailable" in obstacle.message


def test_what_has_begun_is_let_be() -> None:
    wrong = next(case for case in CASES if case.refused == "spec.minAvailable")
    begun = batch.JobStatus(state=batch.JobState(phase="Running"))
    assert list(revalidation.refusals(read(wrong, begun))) == []

"""An object of a kind that is not accepted is refused with what to submit instead."""

import pytest

from stromboli.admission.core import unknown_kinds
from stromboli.shared.api import kinds


@pytest.mark.parametrize(
    ("api_version", "kind", "reason", "expected"),
    [
        (
            "extensions/v1beta1",
            "Ingress",
            "was removed in Kubernetes 1.22",
            "networking.k8s.io/v1 Ingress",
        ),
        (
            "batch/v1beta1",
            "CronJob",
            "was removed in Kubernetes 1.25",
            "batch/v1 CronJob, with: kubectl apply; or batch.volcano.sh/v1alpha1 CronJob here",
        ),
        (
            "apps/v1beta2",
            "Deployment",
            "was removed in Kubernetes 1.16",
            "apps/v1 Deployment, with: kubectl apply",
        ),
        (
            "policy/v1beta1",
            "PodSecurityPolicy",
            "was removed in Kubernetes 1.25",
            "remove the object: nothing replaces it",
        ),
        (
            "scheduling.volcano.sh/v1alpha2",
            "Queue",
            "was removed in Volcano",
            "scheduling.volcano.sh/v1beta1 Queue",
        ),
        (
            "resource.k8s.io/v1beta1",
            "ResourceClaimTemplate",
            "is unknown",
            "did you mean resource.k8s.io/v1 ResourceClaimTemplate?",
        ),
    ],
)
def test_a_removed_api_version_is_named_with_its_replacement(
    api_version: str, kind: str, reason: str, expected: str
) -> None:
    violation = unknown_kinds.unknown_kind(api_version, kind, "kind")
    assert (violation.path, violation.reason) == ("kind", f"{api_version} {kind} {reason}")
    assert violation.expected == expected


def test_no_accepted_kind_is_listed_as_removed() -> None:
    accepted = {(kind.api_version, kind.kind) for kind in kinds.SUBMITTED}
    assert not accepted & unknown_kinds.REMOVED.keys()

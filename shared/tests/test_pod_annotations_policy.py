"""When the annotations of decisions are protected by the cluster's policy."""

import copy
from typing import Any

import pytest

from stromboli.shared.jobspec.policies import pod_annotations


def served() -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy and its binding as an API server returns them, with its defaults."""
    policy, binding = copy.deepcopy(pod_annotations.documents())
    constraints = policy["spec"]["matchConstraints"]
    constraints |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    constraints["resourceRules"][0]["scope"] = "*"
    policy["status"] = {"observedGeneration": 1}
    return policy, binding


def test_our_own_policy_protects_them() -> None:
    assert pod_annotations.shortcoming(*served()) == ""


def test_without_the_policy_or_its_binding_they_are_not_protected() -> None:
    policy, binding = served()
    absent = f"{pod_annotations.NAME} does not exist"
    found = pod_annotations.shortcoming(None, binding)
    assert found == f"the ValidatingAdmissionPolicy {absent}"
    found = pod_annotations.shortcoming(policy, None)
    assert found == f"the ValidatingAdmissionPolicyBinding {absent}"


@pytest.mark.parametrize(
    "changed",
    [
        {"failurePolicy": "Ignore"},
        {"validations": [{"expression": "true"}]},
        {"variables": [{"name": "changed", "expression": "[]"}]},
        {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}},
        {"matchConditions": [{"name": "none", "expression": "false"}]},
        {"matchConstraints": {}},
        {"matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "resources": ["pods"]}]}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_weakened_policy_does_not_protect_them(changed: dict[str, Any]) -> None:
    policy, binding = served()
    policy["spec"] |= changed
    assert "not the one" in pod_annotations.shortcoming(policy, binding)


@pytest.mark.parametrize("field", ["namespaceSelector", "objectSelector", "excludeResourceRules"])
def test_a_policy_for_some_pods_only_does_not_protect_them(field: str) -> None:
    selector = {"matchLabels": {"a": "b"}}
    policy, binding = served()
    policy["spec"]["matchConstraints"][field] = selector
    assert "not the one" in pod_annotations.shortcoming(policy, binding)
    policy, binding = served()
    binding["spec"]["matchResources"] = {field: selector}
    assert "does not deny" in pod_annotations.shortcoming(policy, binding)


@pytest.mark.parametrize(
    "changed", [{"validationActions": ["Audit", "Warn"]}, {"policyName": "another"}], ids=str
)
def test_a_binding_that_does_not_deny_does_not_protect_them(changed: dict[str, Any]) -> None:
    policy, binding = served()
    binding["spec"] |= changed
    assert "does not deny" in pod_annotations.shortcoming(policy, binding)

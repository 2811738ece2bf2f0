"""Which admission configuration lets pods be created with their nodes."""

from typing import Any

import msgspec
import pytest

from stromboli.controller.core.store import admission_configuration
from stromboli.controller.core.store.admission_configuration import Listed
from stromboli.shared.jobspec.policies import pod_annotations

POLICY, BINDING = (msgspec.json.encode(it) for it in pod_annotations.documents())
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
HERE, POD = {"team": "a"}, {"app": "x"}


def webhook(**more: Any) -> bytes:
    made = {"name": "inject.example.org", "rules": [PODS], **more}
    return msgspec.json.encode({"metadata": {"name": "inject"}, "webhooks": [made]})


def mutating_policy(**more: Any) -> bytes:
    constraints = {"resourceRules": [PODS], **more}
    spec = {"matchConstraints": constraints}
    return msgspec.json.encode({"metadata": {"name": "sidecars"}, "spec": spec})


def evaluated(
    *webhooks: bytes, mutating: tuple[bytes, ...] = (), deterministic: tuple[str, ...] = ()
) -> admission_configuration.AdmissionConfiguration:
    listed = Listed(webhooks=webhooks, mutating_policies=mutating, policy=POLICY, binding=BINDING)
    return admission_configuration.evaluate(listed, deterministic)


def matching(found: admission_configuration.AdmissionConfiguration) -> str:
    mutator = found.mutator_of(HERE, POD)
    return "" if mutator is None else mutator.name


def test_without_the_policy_for_annotations_there_is_a_problem() -> None:
    problem = admission_configuration.evaluate(Listed()).problem
    assert "ValidatingAdmissionPolicy pod-annotations.stromboli.sh does not exist" in problem
    assert evaluated().problem == ""


def test_a_webhook_that_matches_pods_may_change_them() -> None:
    assert matching(evaluated(webhook())) == "inject.example.org"
    assert matching(evaluated(mutating=(mutating_policy(),))) == "sidecars"


@pytest.mark.parametrize("conditions", [[{"name": "c", "expression": "false"}]])
def test_a_condition_that_is_not_evaluated_counts_as_a_match(conditions: list[Any]) -> None:
    assert matching(evaluated(webhook(matchConditions=conditions))) == "inject.example.org"


def test_what_an_operator_declares_deterministic_keeps_no_pod_from_its_node() -> None:
    declared = ("inject.example.org", "sidecars")
    found = evaluated(webhook(), mutating=(mutating_policy(),), deterministic=declared)
    assert found.mutators == ()


def test_our_own_webhook_for_pods_is_deterministic() -> None:
    assert evaluated(webhook(name=admission_configuration.OWN)).mutators == ()


@pytest.mark.parametrize(
    "rule",
    [
        {"resources": ["pods/status", "services"]},
        {"operations": ["UPDATE", "DELETE"]},
        {"apiGroups": ["apps"]},
        {"scope": "Cluster"},
    ],
    ids=str,
)
def test_a_webhook_for_other_requests_changes_no_new_pod(rule: dict[str, Any]) -> None:
    assert evaluated(webhook(rules=[{**PODS, **rule}])).mutators == ()


@pytest.mark.parametrize("resources", ["*", "*/*"])
def test_a_webhook_for_everything_may_change_pods(resources: str) -> None:
    every = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    found = evaluated(webhook(rules=[{**every, "resources": [resources]}]))
    assert matching(found) == "inject.example.org"


@pytest.mark.parametrize("made", [webhook, mutating_policy])
def test_selectors_limit_a_webhook_to_namespaces_and_pods(made: Any) -> None:
    def found(**selectors: Any) -> admission_configuration.AdmissionConfiguration:
        raw = made(**selectors)
        return evaluated(raw) if made is webhook else evaluated(mutating=(raw,))

    other, same = {"matchLabels": {"team": "b"}}, {"matchLabels": HERE}
    assert matching(found(namespaceSelector=other)) == ""
    assert matching(found(namespaceSelector=same)) != ""
    assert found(namespaceSelector=other).mutator_of(None, POD) is not None
    exists = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert matching(found(objectSelector=exists)) == ""


def test_a_configuration_that_is_not_json_cannot_be_evaluated() -> None:
    with pytest.raises(msgspec.DecodeError):
        evaluated(b"{")

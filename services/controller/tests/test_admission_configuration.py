"""Which admission configuration lets pods be created with their nodes."""

from typing import Any

import msgspec
import pytest

from stromboli.controller.core.store import admission_configuration
from stromboli.controller.core.store.admission_configuration import Listed
from stromboli.shared.jobspec import policies
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
    exclusion = found.exclusion_of(HERE, POD)
    return "" if exclusion is None else exclusion.name


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
    assert found.exclusions == ()


def test_our_own_webhook_for_pods_is_deterministic() -> None:
    assert evaluated(webhook(name=admission_configuration.OWN)).exclusions == ()


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
    assert evaluated(webhook(rules=[{**PODS, **rule}])).exclusions == ()


@pytest.mark.parametrize("resources", ["pods/binding", "pods/*", "*/*"])
@pytest.mark.parametrize("field", ["webhooks", "validating_webhooks", "validating_policies"])
def test_what_judges_bindings_excludes_pods_of_its_namespaces(field: str, resources: str) -> None:
    """A pod that is created with its node would evade it. No operator can declare it harmless."""
    made = mutating_policy if field == "validating_policies" else webhook
    rule = {**PODS, "resources": [resources]}
    here = {"namespaceSelector": {"matchLabels": HERE}, "objectSelector": {"matchLabels": HERE}}
    raw = (
        made(resourceRules=[rule], **here)
        if made is mutating_policy
        else made(rules=[rule], **here)
    )
    listed = Listed(policy=POLICY, binding=BINDING, **{field: (raw,)})
    found = admission_configuration.evaluate(listed, ("inject.example.org", "sidecars"))
    assert matching(found) in ("inject.example.org", "sidecars")
    assert found.exclusion_of({"team": "b"}, POD) is None


ADMISSION = {
    "apiGroups": ["scheduling.volcano.sh"],
    "apiVersions": ["v1beta1"],
    "operations": ["UPDATE"],
    "resources": ["podgroups"],
}


@pytest.mark.parametrize(
    ("rule", "judges"),
    [
        ({}, True),
        ({"resources": ["*"], "apiGroups": ["*"]}, True),
        ({"operations": ["CREATE"]}, False),
        ({"resources": ["queues"]}, False),
        ({"apiGroups": [""]}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "field", ["webhooks", "validating_webhooks", "mutating_policies", "validating_policies"]
)
def test_what_may_reject_the_update_of_a_pod_group_judges_admissions(
    field: str, rule: dict[str, Any], judges: bool
) -> None:
    rules = [{**ADMISSION, **rule}]
    is_webhook = "webhooks" in field
    raw = webhook(rules=rules) if is_webhook else mutating_policy(resourceRules=rules)
    listed = Listed(policy=POLICY, binding=BINDING, **{field: (raw,)})
    assert admission_configuration.evaluate(listed).judges_admissions == judges


def test_our_own_rules_for_pod_groups_judge_no_admission() -> None:
    """They leave PodGroups that the controller created for jobs alone."""
    webhooks = (webhook(rules=[ADMISSION], name="validate.podgroups.stromboli.sh"),)
    made = policies.documents("podgroups")
    own = [it for it in made if it["kind"] == "ValidatingAdmissionPolicy"]
    assert len(own) > 1
    listed = Listed(
        validating_webhooks=webhooks,
        validating_policies=tuple(map(msgspec.json.encode, own)),
        policy=POLICY,
        binding=BINDING,
    )
    assert not admission_configuration.evaluate(listed).judges_admissions


def test_our_policy_for_annotations_excludes_nothing() -> None:
    """It matches Bindings, too."""
    listed = Listed(validating_policies=(POLICY,), policy=POLICY, binding=BINDING)
    assert admission_configuration.evaluate(listed).exclusions == ()


@pytest.mark.parametrize("field", ["validating_webhooks", "validating_policies"])
def test_what_validates_new_pods_excludes_none(field: str) -> None:
    """It judges the pod with its node, and if it rejects it, the pod is created pending."""
    raw = mutating_policy() if field == "validating_policies" else webhook()
    listed = Listed(policy=POLICY, binding=BINDING, **{field: (raw,)})
    assert admission_configuration.evaluate(listed).exclusions == ()


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
    assert found(namespaceSelector=other).exclusion_of(None, POD) is not None
    exists = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    assert matching(found(objectSelector=exists)) == ""


def test_a_configuration_that_is_not_json_cannot_be_evaluated() -> None:
    with pytest.raises(msgspec.DecodeError):
        evaluated(b"{")

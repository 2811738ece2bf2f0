"""Determines which pods may be created with their nodes, from the cluster's admission
configuration.

Two facts decide. The policy that protects the annotations of decisions must be in force
(``stromboli.shared.jobspec.policies.pod_annotations``): the id of a decision on a pod counts as
proof that the decision was executed. And no webhook or policy may change the pods after their plan,
since it might change the created pod differently from the dry run. A setting lists those that
change equal pods equally.

Whatever cannot be evaluated here counts as a match: conditions in CEL, an unknown namespace, and a
configuration that cannot be read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import core, label_selectors, meta
from stromboli.shared.jobspec.policies import pod_annotations

OWN = "mutate.pods.stromboli.sh"
"""The webhook of our admission service for resource groups: it changes equal pods equally."""


class _Rule(meta.Part, frozen=True, kw_only=True):
    """A rule of a webhook or policy: the requests that it matches."""

    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    scope: str = "*"


class _Webhook(meta.Part, frozen=True, kw_only=True):
    name: str = ""
    rules: tuple[_Rule, ...] = ()
    namespace_selector: core.LabelSelector = core.LabelSelector()
    object_selector: core.LabelSelector = core.LabelSelector()


class _WebhookConfiguration(meta.Object, frozen=True, kw_only=True):
    webhooks: tuple[_Webhook, ...] = ()


class _Constraints(meta.Part, frozen=True, kw_only=True):
    resource_rules: tuple[_Rule, ...] = ()
    namespace_selector: core.LabelSelector = core.LabelSelector()
    object_selector: core.LabelSelector = core.LabelSelector()


class _PolicySpec(meta.Part, frozen=True, kw_only=True):
    match_constraints: _Constraints = _Constraints()


class _Policy(meta.Object, frozen=True, kw_only=True):
    spec: _PolicySpec = _PolicySpec()


class Mutator(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook or policy that may change new pods and is not declared deterministic by a
    setting."""

    name: str
    namespaces: core.LabelSelector = core.LabelSelector()
    pods: core.LabelSelector = core.LabelSelector()


class AdmissionConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluated configuration. ``problem``: why no pod may be created with its node; empty if
    some may. ``is_protected``: whether the policy that protects the annotations exists, in force or
    not."""

    problem: str = ""
    is_protected: bool = True
    mutators: tuple[Mutator, ...] = ()

    def mutator_of(
        self, namespace: Mapping[str, str] | None, pod: Mapping[str, str]
    ) -> Mutator | None:
        """The first mutator that may change a new pod. ``namespace``: the labels of the pod's
        namespace, None if unknown; ``pod``: the labels of the pod. O(mutators)."""
        return next((it for it in self.mutators if _may_match(it, namespace, pod)), None)


def _may_match(
    mutator: Mutator, namespace: Mapping[str, str] | None, pod: Mapping[str, str]
) -> bool:
    if namespace is not None and not label_selectors.matches(mutator.namespaces, namespace):
        return False
    return label_selectors.matches(mutator.pods, pod)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's admission configuration, as bytes. ``policy``, ``binding``: the policy that
    protects the annotations and its binding, None if absent."""

    webhooks: tuple[bytes, ...] = ()
    mutating_policies: tuple[bytes, ...] = ()
    policy: bytes | None = None
    binding: bytes | None = None


def evaluate(listed: Listed, deterministic: Collection[str] = ()) -> AdmissionConfiguration:
    """Evaluate the configuration. ``deterministic``: names of webhooks and policies that an
    operator declares to change equal pods equally. Raises msgspec.DecodeError."""
    problem = pod_annotations.shortcoming(_document(listed.policy), _document(listed.binding))
    found = (
        *_of_webhooks(_WEBHOOKS.decode(raw) for raw in listed.webhooks),
        *_of_policies(_POLICIES.decode(raw) for raw in listed.mutating_policies),
    )
    mutators = (it for it in found if it.name not in deterministic)
    is_protected = listed.policy is not None or listed.binding is not None
    return AdmissionConfiguration(
        problem=problem, is_protected=is_protected, mutators=tuple(mutators)
    )


def _document(raw: bytes | None) -> dict[str, Any] | None:
    return None if raw is None else decoding.from_json(raw, dict[str, Any])


def _of_webhooks(configurations: Iterable[_WebhookConfiguration]) -> Iterator[Mutator]:
    for configuration in configurations:
        for webhook in configuration.webhooks:
            if _concerns_pods(webhook.rules) and webhook.name != OWN:
                yield Mutator(
                    name=webhook.name,
                    namespaces=webhook.namespace_selector,
                    pods=webhook.object_selector,
                )


def _of_policies(found: Iterable[_Policy]) -> Iterator[Mutator]:
    for policy in found:
        constraints = policy.spec.match_constraints
        if _concerns_pods(constraints.resource_rules):
            yield Mutator(
                name=policy.metadata.name,
                namespaces=constraints.namespace_selector,
                pods=constraints.object_selector,
            )


def _concerns_pods(rules: Iterable[_Rule]) -> bool:
    """Whether any rule matches the creation of a pod."""
    return any(
        {"", "*"} & set(rule.api_groups)
        and {"v1", "*"} & set(rule.api_versions)
        and {"CREATE", "*"} & set(rule.operations)
        and {"pods", "*", "*/*"} & set(rule.resources)
        and rule.scope != "Cluster"
        for rule in rules
    )


_WEBHOOKS = decoding.decoder_of(_WebhookConfiguration)
_POLICIES = decoding.decoder_of(_Policy)

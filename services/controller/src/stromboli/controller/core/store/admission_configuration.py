"""Determines which pods may be created with their nodes, from the cluster's admission
configuration.

Three conditions have to be met. First, the policy that protects the annotations of decisions is in
force (``stromboli.shared.jobspec.policies.pod_annotations``): the id of a decision on a pod counts
as proof that the decision was executed. Second, no webhook or policy changes the pods after their
plan, since it might change the created pod differently from the dry run. A setting lists the
webhooks and policies that change equal pods equally. Third, no webhook or policy intercepts
Bindings: a pod that is created with its node has no Binding, and would evade the webhook or policy.

A webhook or policy may intercept the update of a PodGroup that admits the PodGroup to its queue.
Then the pods are created after this update; otherwise the controller requests both concurrently.

Whatever cannot be evaluated here counts as a match: conditions in CEL, an unknown namespace, and a
configuration that cannot be read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from stromboli.shared import decoding
from stromboli.shared.api import core, kinds, label_selectors, meta
from stromboli.shared.jobspec.policies import pod_annotations

OWN = "mutate.pods.stromboli.sh"
"""The webhook of our admission service for resource groups: it changes equal pods equally."""
OWN_SUFFIX = ".stromboli.sh"
"""Suffix of the names of our webhooks and policies: they let PodGroups pass that we create for
jobs."""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of request: the values in a rule that match it."""

    group: str = ""
    version: str = "v1"
    operation: str = "CREATE"
    resources: frozenset[str]


PODS = _Request(resources=frozenset({"pods", "*", "*/*"}))
BINDINGS = _Request(resources=frozenset({"pods/binding", "pods/*", "*/binding", "*/*"}))
"""New pods, and their Bindings. ``bindings``, the older form of the request, is never sent."""
ADMISSIONS = _Request(
    group=kinds.POD_GROUPS.group,
    version=kinds.POD_GROUPS.version,
    operation="UPDATE",
    resources=frozenset({kinds.POD_GROUPS.plural, "*", "*/*"}),
)
"""The update that admits a PodGroup to its queue."""


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


class Exclusion(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook or policy that makes the controller create the selected pods pending: it may change
    new pods and is not declared deterministic by a setting, or it intercepts Bindings."""

    name: str
    namespaces: core.LabelSelector = core.LabelSelector()
    pods: core.LabelSelector = core.LabelSelector()


class AdmissionConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluated configuration. ``problem``: why no pod may be created with its node; empty if
    some may. ``is_protected``: whether the policy that protects the annotations exists, in force or
    not. ``changes_pods``: whether a webhook or policy may change new pods, including one that
    changes equal pods equally. ``judges_admissions``: whether a third-party webhook or policy may
    reject the update that admits a PodGroup to its queue."""

    problem: str = ""
    is_protected: bool = True
    changes_pods: bool = False
    judges_admissions: bool = False
    exclusions: tuple[Exclusion, ...] = ()

    def exclusion_of(
        self, namespace: Mapping[str, str] | None, pod: Mapping[str, str]
    ) -> Exclusion | None:
        """The first exclusion that may match a new pod. ``namespace``: the labels of the pod's
        namespace, None if unknown; ``pod``: the labels of the pod. O(exclusions)."""
        return next((it for it in self.exclusions if _may_match(it, namespace, pod)), None)


def _may_match(
    exclusion: Exclusion, namespace: Mapping[str, str] | None, pod: Mapping[str, str]
) -> bool:
    if namespace is not None and not label_selectors.matches(exclusion.namespaces, namespace):
        return False
    return label_selectors.matches(exclusion.pods, pod)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's admission configuration, as bytes. ``webhooks``: the mutating webhooks.
    ``policy``, ``binding``: the policy that protects the annotations and its binding, None if
    absent; the policy is among ``validating_policies``, too."""

    webhooks: tuple[bytes, ...] = ()
    validating_webhooks: tuple[bytes, ...] = ()
    mutating_policies: tuple[bytes, ...] = ()
    validating_policies: tuple[bytes, ...] = ()
    policy: bytes | None = None
    binding: bytes | None = None


def evaluate(listed: Listed, deterministic: Collection[str] = ()) -> AdmissionConfiguration:
    """Evaluate the configuration. ``deterministic``: names of webhooks and policies that an
    operator declares to change equal pods equally. Raises msgspec.DecodeError."""
    problem = pod_annotations.shortcoming(_document(listed.policy), _document(listed.binding))
    webhooks = tuple(_of_webhooks(listed.webhooks, PODS))
    mutating = (
        *(it for it in webhooks if it.name != OWN),
        *_of_policies(listed.mutating_policies, PODS),
    )
    of_others = (it for it in mutating if it.name not in deterministic)
    exclusions = (*of_others, *_judges(listed, BINDINGS))
    return AdmissionConfiguration(
        problem=problem,
        is_protected=listed.policy is not None or listed.binding is not None,
        changes_pods=bool(webhooks) or bool(mutating),
        judges_admissions=any(
            not it.name.endswith(OWN_SUFFIX) for it in _judges(listed, ADMISSIONS)
        ),
        exclusions=exclusions,
    )


def _judges(listed: Listed, requests: _Request) -> Iterator[Exclusion]:
    """The webhooks and policies, mutating or not, that may reject a request of this kind."""
    yield from _of_webhooks((*listed.webhooks, *listed.validating_webhooks), requests)
    yield from _of_policies((*listed.mutating_policies, *listed.validating_policies), requests)


def _document(raw: bytes | None) -> dict[str, Any] | None:
    return None if raw is None else decoding.from_json(raw, dict[str, Any])


def _of_webhooks(raw: Iterable[bytes], requests: _Request) -> Iterator[Exclusion]:
    for configuration in map(_WEBHOOKS.decode, raw):
        for webhook in configuration.webhooks:
            if _concerns(webhook.rules, requests):
                yield _exclusion(webhook.name, webhook, requests)


def _of_policies(raw: Iterable[bytes], requests: _Request) -> Iterator[Exclusion]:
    for policy in map(_POLICIES.decode, raw):
        constraints = policy.spec.match_constraints
        is_own = policy.metadata.name == pod_annotations.NAME
        if _concerns(constraints.resource_rules, requests) and not is_own:
            yield _exclusion(policy.metadata.name, constraints, requests)


def _exclusion(name: str, selectors: _Webhook | _Constraints, requests: _Request) -> Exclusion:
    # The object of such a request is the Binding, and its labels are not known in advance.
    every = core.LabelSelector()
    return Exclusion(
        name=name,
        namespaces=selectors.namespace_selector,
        pods=selectors.object_selector if requests is PODS else every,
    )


def _concerns(rules: Iterable[_Rule], requests: _Request) -> bool:
    """Whether any rule matches these requests."""
    return any(
        {requests.group, "*"} & set(rule.api_groups)
        and {requests.version, "*"} & set(rule.api_versions)
        and {requests.operation, "*"} & set(rule.operations)
        and requests.resources & set(rule.resources)
        and rule.scope != "Cluster"
        for rule in rules
    )


_WEBHOOKS = decoding.decoder_of(_WebhookConfiguration)
_POLICIES = decoding.decoder_of(_Policy)

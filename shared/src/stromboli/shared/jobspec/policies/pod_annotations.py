"""The policy that only our services may write the annotations that decisions set on pods.

The id of a decision on a pod proves that the decision was executed (``keys.DECISION``), so a
service that creates pods with their nodes relies on this policy. ``shortcoming`` detects a cluster
without it, or with a weakened one.

Who may write them is a matter of RBAC: the accounts with the verb ``write`` on the resource
``decisions`` of the group ``scheduling.stromboli.sh``, which no API serves. So one policy holds
for a cluster with several installations, each with its own account.
"""

import json
from collections.abc import Mapping
from typing import Any

from stromboli.shared import keys

NAME = "pod-annotations.stromboli.sh"
"""The name of the policy and of its binding."""
RESERVED = (
    keys.DECISION,
    keys.DEVICES,
    keys.CPUS,
    keys.EVICTED_AT,
    keys.ATTEMPT,
    keys.INDEX_RETRY,
)
_API_VERSION = "admissionregistration.k8s.io/v1"
_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    # A Binding writes its annotations to the pod, and a status update may change annotations.
    "resources": ["pods", "pods/binding", "pods/status"],
}
RIGHT = {"apiGroups": ["scheduling.stromboli.sh"], "resources": ["decisions"], "verbs": ["write"]}
"""The rule of a ClusterRole whose accounts may write the annotations."""
Document = dict[str, Any]


def documents() -> tuple[Document, Document]:
    """The policy and its binding."""
    return (
        {
            "apiVersion": _API_VERSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": NAME},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [_RULE]},
                "variables": _variables(),
                "validations": _validations(),
            },
        },
        {
            "apiVersion": _API_VERSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": NAME},
            "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        },
    )


def _variables() -> list[Document]:
    def value(of: str) -> str:
        return f"{of}.?metadata.?annotations[?k].orValue('')"

    before = f"(oldObject == null ? '' : {value('oldObject')})"
    changed = f"{json.dumps(RESERVED)}.filter(k, {value('object')} != {before})"
    return [{"name": "changed", "expression": changed}]


def _validations() -> list[Document]:
    group, resource, verb = (RIGHT[field][0] for field in ("apiGroups", "resources", "verbs"))
    is_ours = f"authorizer.group('{group}').resource('{resource}').check('{verb}').allowed()"
    return [
        {
            "expression": f"variables.changed.size() == 0 || {is_ours}",
            "messageExpression": "'metadata.annotations: only Stromboli may write '"
            " + variables.changed.join(', ')",
            "reason": "Forbidden",
        }
    ]


def shortcoming(policy: Mapping[str, Any] | None, binding: Mapping[str, Any] | None) -> str:
    """Why the policy and binding of a cluster do not protect the annotations; empty if they do.
    Which accounts have the right to write them is not checked."""
    if policy is None or binding is None:
        kind = "ValidatingAdmissionPolicy" if policy is None else "ValidatingAdmissionPolicyBinding"
        return f"the {kind} {NAME} does not exist"
    if not _is_whole(policy.get("spec") or {}):
        return f"the ValidatingAdmissionPolicy {NAME} is not the one of this version"
    spec = binding.get("spec") or {}
    bound = spec.get("policyName") == NAME and "Deny" in (spec.get("validationActions") or ())
    if not bound or _is_narrowed(spec.get("matchResources") or {}):
        return f"the ValidatingAdmissionPolicyBinding {NAME} does not deny all matching requests"
    return ""


def _is_whole(spec: Mapping[str, Any]) -> bool:
    """Whether the policy rejects the same requests as ours."""
    constraints = spec.get("matchConstraints") or {}
    covers = any(
        all(set(wanted) <= set(rule.get(field) or ()) for field, wanted in _RULE.items())
        and not rule.get("resourceNames")
        and rule.get("scope", "*") in ("*", "Namespaced")
        for rule in constraints.get("resourceRules") or ()
    )
    return (
        covers
        and not _is_narrowed({**constraints, "resourceRules": None})
        and not spec.get("matchConditions")
        and spec.get("failurePolicy", "Fail") == "Fail"
        and spec.get("paramKind") is None
        and spec.get("variables") == _variables()
        and [it.get("expression") for it in spec.get("validations") or ()]
        == [it["expression"] for it in _validations()]
    )


def _is_narrowed(match: Mapping[str, Any]) -> bool:
    """Whether selectors or exclusions exempt some requests."""
    fields = ("namespaceSelector", "objectSelector", "excludeResourceRules", "resourceRules")
    return any(match.get(field) for field in fields)

"""Builds the manifests of the policies and their bindings, and the files that contain them."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.jobspec.policies import permissions, rules

DIRECTORY = pathlib.Path(__file__).parent
SCHEDULER_NAMES = ("volcano", "stromboli")
"""The scheduler names of our objects, as in the default settings of services."""
API_VERSION = "admissionregistration.k8s.io/v1"
Document = dict[str, Any]

_KINDS = {
    kind.plural: kind
    for kind in (
        kinds.JOBS,
        kinds.QUEUES,
        kinds.POD_GROUPS,
        kinds.PODS,
        kinds.JOB_FLOWS,
        kinds.CRON_JOBS,
        kinds.HYPER_NODES,
        kinds.ADVANCE_RESERVATIONS,
        kinds.COMMANDS,
    )
}
_NAMED_AT: dict[Kind[Any], str] = {
    kinds.JOBS: "?spec.?schedulerName",
    kinds.CRON_JOBS: "?spec.?jobTemplate.?spec.?schedulerName",
    kinds.PODS: "?spec.?schedulerName",
}
"""The field in which an object names its scheduler."""
_ONE_LINE = frozenset({kinds.PODS.plural, kinds.POD_GROUPS.plural, kinds.COMMANDS.plural})
"""Kinds that are validated on creation only, since other components change them later."""


class _Writer(yaml.SafeDumper):
    """A YAML dumper that folds long texts and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def paths() -> tuple[pathlib.Path, ...]:
    """The files for `kubectl apply -f`, one per kind."""
    return tuple(DIRECTORY / f"{plural}.yaml" for plural in sorted(_KINDS))


def documents(
    plural: str,
    scheduler_names: Sequence[str] = SCHEDULER_NAMES,
    service_accounts: Sequence[str] = (),
) -> tuple[Document, ...]:
    """The policies of a kind, each followed by its binding. ``service_accounts``: the user names of
    our services.
    """
    admission_policies = [_policy(plural, scheduler_names)]
    if plural == kinds.QUEUES.plural:
        admission_policies.append(_queues_that_stay())
    if plural in permissions.SUBMITTED:
        admission_policies.append(_submitter(plural, scheduler_names, service_accounts))
    if plural in permissions.USING:
        admission_policies += [
            _permission(plural, kind, scheduler_names, service_accounts)
            for kind in (kinds.QUEUES, kinds.PRIORITY_CLASSES)
        ]
    return tuple(
        document for policy in admission_policies for document in (policy, _binding(policy))
    )


def text(plural: str) -> str:
    """The expected content of the file of a kind."""
    head = (
        f"# Validation of {plural} by the API server itself.\n"
        "# Written by `python -m stromboli.shared.jobspec.policies`: edit rules.py instead.\n"
    )
    body = yaml.dump_all(
        documents(plural), Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100
    )
    return head + body


def _policy(plural: str, scheduler_names: Sequence[str]) -> Document:
    kind, own = _KINDS[plural], rules.RULES[plural]
    shared = rules.VARIABLES.get(plural, {})
    all_violations = " + ".join(f"variables.{name}Found" for name in own)
    variables = [
        *({"name": name, "expression": expression} for name, expression in shared.items()),
        *({"name": f"{name}Found", "expression": expression} for name, expression in own.items()),
        {"name": "found", "expression": all_violations},
    ]
    operations = ["CREATE"] if plural in _ONE_LINE else ["CREATE", "UPDATE"]
    return _document(
        f"{plural}.stromboli.sh",
        {
            "failurePolicy": "Ignore" if kind == kinds.PODS else "Fail",
            "matchConstraints": {"resourceRules": [_rule(plural, operations)]},
            "matchConditions": [*ours(kind, scheduler_names), *_changed(plural)],
            "variables": variables,
            "validations": [
                {
                    "expression": "variables.found.size() == 0",
                    "messageExpression": "variables.found.join('; ')",
                    "reason": "Invalid",
                }
            ],
        },
    )


def _match_conditions(
    plural: str, scheduler_names: Sequence[str], service_accounts: Sequence[str]
) -> Document:
    """The match conditions of a kind's policies. The controller creates the PodGroup of a job after
    the job was validated; with known service accounts, no other client may claim that its PodGroup
    belongs to a job.
    """
    conditions = ours(_KINDS[plural], scheduler_names)
    if plural == kinds.POD_GROUPS.plural:
        conditions = [
            {"name": "not-of-a-job", "expression": not_created_for_a_job(service_accounts)}
        ]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [_rule(plural, ["CREATE", "UPDATE"])]},
        "matchConditions": conditions,
    }


def not_created_for_a_job(service_accounts: Sequence[str]) -> str:
    """The CEL condition that an object is not a child object of a job that our services created."""
    spared = (
        "object.?metadata.?ownerReferences.orValue([])"
        f".exists(o, o.kind == 'Job' && o.apiVersion == '{kinds.JOBS.api_version}')"
    )
    if service_accounts:
        spared += f" && request.userInfo.username in {json.dumps(list(service_accounts))}"
    return f"!({spared})"


def _submitter(
    plural: str, scheduler_names: Sequence[str], service_accounts: Sequence[str]
) -> Document:
    variables, validation = permissions.of_submitter(plural, service_accounts)
    spec = _match_conditions(plural, scheduler_names, service_accounts)
    return _document(
        f"{plural}-submitter.stromboli.sh",
        {**spec, "variables": variables, "validations": [validation]},
    )


def _permission(
    plural: str,
    kind: Kind[Any],
    scheduler_names: Sequence[str],
    service_accounts: Sequence[str],
) -> Document:
    """The policy on permissions, which is evaluated once for each queue or priority class as its
    parameter."""
    return _document(
        f"{plural}-{kind.plural}.stromboli.sh",
        {
            **_match_conditions(plural, scheduler_names, service_accounts),
            "paramKind": {"apiVersion": kind.api_version, "kind": kind.kind},
            "variables": permissions.variables(plural, kind, service_accounts),
            "validations": [permissions.validation(plural, kind)],
        },
    )


def _queues_that_stay() -> Document:
    return _document(
        "queues-that-stay.stromboli.sh",
        {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [_rule(kinds.QUEUES.plural, ["DELETE"])]},
            "validations": [
                {
                    "expression": "!(oldObject.metadata.name in ['root', 'default'])",
                    "message": "metadata.name: queues root and default cannot be deleted",
                    "reason": "Invalid",
                }
            ],
        },
    )


def _changed(plural: str) -> list[Document]:
    """The match condition that an update changes a validated field."""
    condition = rules.CONDITIONS.get(plural)
    return [{"name": "changed", "expression": condition}] if condition else []


def ours(
    kind: Kind[Any], scheduler_names: Sequence[str], *, is_deletion: bool = False
) -> list[Document]:
    """The match conditions for objects of our schedulers: none for a kind without a scheduler name.
    An object that names no scheduler is ours, except a pod, which then uses Kubernetes' default
    scheduler. A deletion has only an old object.
    """
    if kind not in _NAMED_AT:
        return []
    is_pod = kind == kinds.PODS
    names = json.dumps([*([] if is_pod else [""]), *scheduler_names])
    default = "default-scheduler" if is_pod else ""
    named = f"{_NAMED_AT[kind]}.orValue('{default}') in {names}"
    expression = f"{'oldObject' if is_deletion else 'object'}.{named}"
    if not is_pod and not is_deletion:  # our objects must not be moved to another scheduler
        expression += f" || (oldObject != null && oldObject.{named})"
    return [{"name": "ours", "expression": expression}]


def _rule(plural: str, operations: list[str]) -> Document:
    kind = _KINDS[plural]
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "operations": operations,
        "resources": [plural],
    }


def _document(name: str, spec: Document) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def _binding(policy: Document) -> Document:
    name = policy["metadata"]["name"]
    parameters: Document = {}
    if "paramKind" in policy["spec"]:
        parameters = {"paramRef": {"selector": {}, "parameterNotFoundAction": "Allow"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, **parameters, "validationActions": ["Deny"]},
    }

"""The webhooks that an API server calls, and the configurations that register them.

They cover only our own API groups: while admission is unavailable, pods of other workloads are not
blocked.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from litestar import Litestar, Request, Response, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from stromboli.admission.review.service import AdmissionService
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.formats import durations
from stromboli.shared.jobspec import policies
from stromboli.shared.jobspec.validation.review import Operation

BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""The usual limit of webhooks: twice the largest object in etcd."""
TIMEOUT_S = 10
"""Default timeout of an API server; a request may contain another one."""
MARGIN_S = 1.0
"""How long before the timeout the response is sent (at most half of the timeout): a rejection that
names the slow part is better than an expired deadline.
"""

RULES: tuple[tuple[kinds.Kind[Any], str, tuple[Operation, ...]], ...] = (
    (kinds.JOBS, "mutate", ("CREATE",)),
    (kinds.JOBS, "validate", ("CREATE", "UPDATE")),
    (kinds.QUEUES, "mutate", ("CREATE",)),
    (kinds.QUEUES, "validate", ("CREATE", "UPDATE", "DELETE")),
    (kinds.CRON_JOBS, "mutate", ("CREATE", "UPDATE")),
    (kinds.CRON_JOBS, "validate", ("CREATE", "UPDATE")),
    (kinds.JOB_FLOWS, "mutate", ("CREATE", "UPDATE")),
    (kinds.JOB_FLOWS, "validate", ("CREATE", "UPDATE")),
    (kinds.POD_GROUPS, "mutate", ("CREATE", "UPDATE")),
    (kinds.POD_GROUPS, "validate", ("CREATE", "UPDATE")),
    (kinds.HYPER_NODES, "validate", ("CREATE", "UPDATE")),
    (kinds.ADVANCE_RESERVATIONS, "validate", ("CREATE", "UPDATE")),
    (kinds.COMMANDS, "validate", ("CREATE",)),
)
"""Reviewed kinds: kind, action, operations. The path is ``/<plural>/<action>``."""
POD_RULES: tuple[tuple[kinds.Kind[Any], str, tuple[Operation, ...]], ...] = (
    (kinds.PODS, "mutate", ("CREATE",)),
    (kinds.PODS, "validate", ("CREATE",)),
)
"""Reviews of pods, which this service also answers. Our configurations register no webhook for all
pods: CEL policies validate pods (``policies``). The mutating webhook for pods is registered only if
the operator configures resource groups or queue gates; its failures are ignored.
"""
RECORDED: tuple[tuple[kinds.Kind[Any], str, tuple[Operation, ...]], ...] = (
    (kinds.JOBS, "record", ("DELETE",)),
)
"""Requests whose user is recorded and which are always allowed. While admission is unavailable,
jobs can still be deleted, but the user is not recorded."""
RECORD_TIMEOUT_S = 1
"""The shortest timeout that an API server accepts, in seconds: a deletion waits for this long while
admission is unreachable."""
_CHANGED = " || ".join(
    [
        "oldObject == null",
        *(
            f"object.?spec.?{field}.orValue('') != oldObject.?spec.?{field}.orValue('')"
            for field in ("queue", "priorityClassName")
        ),
        *(
            f"object.?metadata.?annotations[?'{key}'].orValue('')"
            f" != oldObject.?metadata.?annotations[?'{key}'].orValue('')"
            for key in (keys.USER, keys.USER_GROUPS)
        ),
    ]
)
"""Fields of a PodGroup whose update is reviewed; the controller often updates the other fields."""

_MORE_THAN_FINALIZERS = "request.operation != 'UPDATE' || " + " || ".join(
    f"object.{part} != oldObject.{part}"
    for part in ("?spec", "?metadata.?labels", "?metadata.?annotations")
)
"""The match condition that an update changes a reviewed part of the object. While admission is
unavailable, finalizers can be removed, so deleted objects do not remain."""


def _pod_group_conditions(service_accounts: Sequence[str]) -> list[dict[str, Any]]:
    """Match conditions for PodGroups. The controller creates a job's PodGroup after the job was
    validated: a second review would cost every job two calls and block it while admission is
    unavailable. With known service accounts, no other client may claim that its PodGroup belongs to
    a job.
    """
    return [
        {"name": "not-of-a-job", "expression": policies.not_created_for_a_job(service_accounts)},
        {"name": "changed", "expression": _CHANGED},
    ]


def app(admission: AdmissionService) -> Litestar:
    """The application that serves the webhooks over HTTPS."""

    known = {(kind.plural, action) for kind, action, _ in (*RULES, *RECORDED, *POD_RULES)}

    @post("/{plural:str}/{action:str}", status_code=200, include_in_schema=False)
    async def review(
        request: Request[Any, Any, Any], plural: FromPath[str], action: FromPath[str]
    ) -> Response[bytes]:
        if (plural, action) not in known:
            raise HTTPException(status_code=404, detail=f"no webhook {plural}/{action}")
        try:
            body = await request.body()
            within_s = budget_s(request.query_params.get("timeout", ""))
            answer = await admission.answer(f"/{plural}/{action}", body, within_s)
        except ValueError as error:
            raise HTTPException(status_code=400, detail=str(error)) from None
        return Response(answer, media_type="application/json")

    return Litestar(
        [review],
        openapi_config=None,
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )


def budget_s(timeout: str) -> float:
    """Time limit of a review. ``timeout``: the API server's timeout, from the query of its request
    (``10s``).
    """
    try:
        waits_s = durations.duration(timeout).total_seconds() if timeout else TIMEOUT_S
    except ValueError:
        waits_s = TIMEOUT_S
    waits_s = waits_s if waits_s > 0 else TIMEOUT_S
    return max(waits_s / 2, waits_s - MARGIN_S)


def configurations(
    url: str,
    authority: bytes,
    *,
    resource_groups: bool = False,
    scheduler_names: Sequence[str] = policies.SCHEDULER_NAMES,
    own_namespace: str = "",
    service_accounts: Sequence[str] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration for an API server
    that reaches this service at ``url`` and verifies its certificate with ``authority`` (PEM).

    ``resource_groups``: also registers the mutating webhook for pods, whose failures are ignored.
    ``scheduler_names``: objects of these schedulers are reviewed, and those that name none; so
    objects of other schedulers are never blocked. ``own_namespace``: its pods are not changed, nor
    those of ``kube-system``, so that the system never waits for itself. ``service_accounts``: see
    ``AdmissionSettings``.
    """
    rules = (*RULES, *RECORDED, *(POD_RULES[:1] if resource_groups else ()))
    return tuple(  # type: ignore[return-value]  # one for each name
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{name}WebhookConfiguration",
            "metadata": {"name": "stromboli-admission"},
            "webhooks": [
                _webhook(
                    kind,
                    action,
                    operations,
                    url,
                    authority,
                    _record_conditions(kind, scheduler_names, service_accounts)
                    if action == "record"
                    else _conditions(
                        kind, operations, scheduler_names, own_namespace, service_accounts
                    ),
                )
                for kind, action, operations in rules
                if (action == "mutate") == (name == "Mutating")
            ],
        }
        for name in ("Mutating", "Validating")
    )


def _conditions(
    kind: kinds.Kind[Any],
    operations: tuple[Operation, ...],
    scheduler_names: Sequence[str],
    own_namespace: str,
    service_accounts: Sequence[str],
) -> list[dict[str, Any]]:
    if kind == kinds.POD_GROUPS:
        return _pod_group_conditions(service_accounts)
    if kind == kinds.PODS:  # resource groups apply to pods of any scheduler
        spared = json.dumps(["kube-system", *filter(None, [own_namespace])])
        expression = f"!(request.namespace in {spared})"
        return [{"name": "not-of-the-system", "expression": expression}]
    conditions = policies.ours(kind, scheduler_names)
    if "UPDATE" in operations:
        conditions.append({"name": "more-than-finalizers", "expression": _MORE_THAN_FINALIZERS})
    return conditions


def _record_conditions(
    kind: kinds.Kind[Any], scheduler_names: Sequence[str], service_accounts: Sequence[str]
) -> list[dict[str, Any]]:
    """The match conditions of deletions. Deletions by our services are excluded: no user requested
    them."""
    conditions = policies.ours(kind, scheduler_names, is_deletion=True)
    if service_accounts:
        ours = json.dumps(list(service_accounts))
        expression = f"!(request.userInfo.username in {ours})"
        conditions.append({"name": "not-by-a-service", "expression": expression})
    return conditions


def _webhook(
    kind: kinds.Kind[Any],
    action: str,
    operations: tuple[Operation, ...],
    url: str,
    authority: bytes,
    conditions: list[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "name": f"{action}.{kind.plural}.stromboli.sh",
        "clientConfig": {
            "url": f"{url}/{kind.plural}/{action}",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {
                "apiGroups": [kind.group],
                "apiVersions": [kind.version],
                "operations": list(operations),
                "resources": [kind.plural],
            }
        ],
        "failurePolicy": "Ignore" if kind == kinds.PODS or action == "record" else "Fail",
        "matchConditions": conditions,
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": RECORD_TIMEOUT_S if action == "record" else TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }

"""The webhooks that an API server calls, and the configurations that make it call them.

They cover our own groups only: a door that is shut never keeps other people's pods out.
"""

import base64
from typing import Any

from litestar import Litestar, Request, Response, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from stromboli.admission.door import Door
from stromboli.shared.admission.review import Operation
from stromboli.shared.api import kinds

BODY_LIMIT_BYTES = 3 * 1024 * 1024
"""As the known webhooks have it; an object that fits etcd fits twice."""
TIMEOUT_S = 10
"""Longest an API server waits for us."""

RULES: tuple[tuple[kinds.Kind[Any], str, tuple[Operation, ...]], ...] = (
    (kinds.JOBS, "mutate", ("CREATE",)),
    (kinds.JOBS, "validate", ("CREATE", "UPDATE")),
    (kinds.QUEUES, "mutate", ("CREATE",)),
    (kinds.QUEUES, "validate", ("CREATE", "UPDATE", "DELETE")),
)
"""What is reviewed: kind, way, operations. The path is ``/<plural>/<way>``."""


def app(door: Door) -> Litestar:
    """The application behind HTTPS."""

    @post("/{plural:str}/{way:str}", status_code=200, include_in_schema=False)
    async def review(
        request: Request[Any, Any, Any], plural: FromPath[str], way: FromPath[str]
    ) -> Response[bytes]:
        if not any((kind.plural, known) == (plural, way) for kind, known, _ in RULES):
            raise HTTPException(status_code=404, detail=f"no webhook {plural}/{way}")
        try:
            answer = await door.answer(f"/{plural}/{way}", await request.body())
        except ValueError as error:
            raise HTTPException(status_code=400, detail=str(error)) from None
        return Response(answer, media_type="application/json")

    return Litestar(
        [review],
        openapi_config=None,
        request_max_body_size=BODY_LIMIT_BYTES,
        logging_config=None,
    )


def configurations(url: str, authority: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration for an API server
    that reaches us at ``url`` and checks our certificate against ``authority`` (PEM)."""
    return tuple(  # type: ignore[return-value]  # two ways, two configurations
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{name}WebhookConfiguration",
            "metadata": {"name": "stromboli-admission"},
            "webhooks": [
                _webhook(kind, way, operations, url, authority)
                for kind, known, operations in RULES
                if known == way
            ],
        }
        for name, way in (("Mutating", "mutate"), ("Validating", "validate"))
    )


def _webhook(
    kind: kinds.Kind[Any], way: str, operations: tuple[Operation, ...], url: str, authority: bytes
) -> dict[str, Any]:
    return {
        "name": f"{way}.{kind.plural}.stromboli.sh",
        "clientConfig": {
            "url": f"{url}/{kind.plural}/{way}",
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
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }

"""Creates one object over REST, once per idempotency key."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import HeaderParameter

from stromboli.admission import idempotency, problems
from stromboli.admission.auth import authentication
from stromboli.admission.review import submitted_objects
from stromboli.admission.review.service import AdmissionService
from stromboli.shared.api.kinds import Kind
from stromboli.shared.formats import warning_header

Document = dict[str, Any]
Asked = Request[authentication.Principal, Any, Any]
"""A request whose ``user`` is the authenticated principal."""
Key = Annotated[
    str | None,
    HeaderParameter(
        name=idempotency.HEADER,
        min_length=1,
        max_length=255,
        description="Makes the request safe to repeat for a day: it is executed once, and a "
        "repetition gets the same response. Use a UUID.",
    ),
]


class ObjectCreator:
    """Creates objects of any kind that REST accepts."""

    def __init__(self, admission: AdmissionService) -> None:
        self._admission = admission

    async def create(
        self,
        request: Asked,
        key: str | None,
        kind: Kind[Any],
        namespace: str,
        document: Document,
    ) -> Response[msgspec.Raw]:
        """The object as stored, with status 201. Raises RejectedError, ExternalError."""
        principal = request.user
        requested = await idempotency.request_digest(request, principal, key)
        named = _with_path_names(kind, namespace, document)
        marks = (requested,) if requested else ()

        async def work() -> idempotency.Answer:
            (applied,) = await self._admission.submit(
                [named], principal, only_new=True, marks=marks
            )
            return answer_of(201, applied)

        answer = await (
            self._admission.idempotency_cache.answer(
                idempotency.scoped(key, principal), requested, work
            )
            if key
            else work()
        )
        return response_of(answer)


def answer_of(status: int, applied: submitted_objects.Applied) -> idempotency.Answer:
    """The object as stored, and the warnings about it."""
    warnings = warning_header.bounded(applied.warnings)
    return idempotency.Answer(status, bytes(applied.object), warnings)


def response_of(answer: idempotency.Answer) -> Response[msgspec.Raw]:
    """The response, with the header ``Warning`` if there are warnings, as from an API server."""
    headers = {}
    if answer.warnings:
        headers[warning_header.NAME] = warning_header.encode(answer.warnings)
    return Response(msgspec.Raw(answer.body), status_code=answer.status, headers=headers)


def _with_path_names(kind: Kind[Any], namespace: str, document: Document) -> Document:
    """The document with the namespace and kind of the path."""
    named = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
    if (named["apiVersion"], named["kind"]) != (kind.api_version, kind.kind):
        what = f"this path creates no {named['apiVersion']} {named['kind']}"
        raise problems.invalid("kind", what, f"{kind.api_version} {kind.kind}")
    metadata = named.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise problems.invalid("metadata", "it is not an object", "name and labels of the object")
    metadata = dict(metadata)
    if namespace and metadata.setdefault("namespace", namespace) != namespace:
        what = f"{metadata['namespace']!r} is not the namespace of the path"
        raise problems.invalid("metadata.namespace", what, repr(namespace))
    return {**named, "metadata": metadata}

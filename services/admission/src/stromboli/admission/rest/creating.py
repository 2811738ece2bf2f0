"""Creating one object over REST, once for each idempotency key."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import HeaderParameter

from stromboli.admission import idempotency, problems
from stromboli.admission.auth import principal
from stromboli.admission.review.service import AdmissionService
from stromboli.shared.api.kinds import Kind

Document = dict[str, Any]
Asked = Request[principal.Principal, Any, Any]
"""A request whose ``user`` is who asks, as the guard of ``rights`` found."""
Key = Annotated[
    str | None,
    HeaderParameter(
        name=idempotency.HEADER,
        min_length=1,
        max_length=255,
        description="Makes the request safe to repeat for a day: it is done once, and answered "
        "alike each time. A UUID serves well.",
    ),
]


class Creator:
    """Creates objects of any kind that may come in by REST."""

    def __init__(self, door: AdmissionService) -> None:
        self._door = door

    async def create(
        self,
        request: Asked,
        key: str | None,
        kind: Kind[Any],
        namespace: str,
        document: Document,
    ) -> Response[msgspec.Raw]:
        """The object as stored, with status 201. Raises RefusedError, OutsideError."""
        asker = request.user
        asked = await idempotency.asked(request, asker, key)
        named = _named(kind, namespace, document)
        marks = (asked,) if asked else ()

        async def work() -> tuple[int, bytes]:
            (made,) = await self._door.submit([named], asker, only_new=True, marks=marks)
            return 201, bytes(made.object)

        status, body = await (
            self._door.once.answer(idempotency.scoped(key, asker), asked, work) if key else work()
        )
        return Response(msgspec.Raw(body), status_code=status)


def _named(kind: Kind[Any], namespace: str, document: Document) -> Document:
    """The document with what the path says of it."""
    named = {"apiVersion": kind.api_version, "kind": kind.kind, **document}
    if (named["apiVersion"], named["kind"]) != (kind.api_version, kind.kind):
        what = f"{named['apiVersion']} {named['kind']} cannot be created here"
        raise problems.refusal("kind", what, f"{kind.api_version} {kind.kind}")
    metadata = named.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise problems.refusal("metadata", "it is no object", "name and labels of the object")
    metadata = dict(metadata)
    if namespace and metadata.setdefault("namespace", namespace) != namespace:
        what = f"{metadata['namespace']!r} is not the namespace asked for"
        raise problems.refusal("metadata.namespace", what, repr(namespace))
    return {**named, "metadata": metadata}

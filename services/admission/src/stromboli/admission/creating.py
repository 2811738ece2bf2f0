"""Creating one object over REST, once for each idempotency key."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import HeaderParameter

from stromboli.admission import asking, once, problems
from stromboli.admission.door import Door
from stromboli.admission.incoming import taken
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port as cluster_port

Document = dict[str, Any]
Asked = Request[asking.Asker, Any, Any]
"""A request whose ``user`` is who asks, as the guard of ``rights`` found."""
Key = Annotated[
    str | None,
    HeaderParameter(
        name=once.HEADER,
        min_length=1,
        max_length=255,
        description="Makes the request safe to repeat for a day: it is done once, and answered "
        "alike each time. A UUID serves well.",
    ),
]


class Creator:
    """Creates objects of any kind that may come in by REST."""

    def __init__(self, door: Door, cluster: cluster_port.Cluster) -> None:
        self._door = door
        self._cluster = cluster

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
        asked = await once.asked(request, asker, key)
        named = _named(kind, namespace, document, asked)

        async def work() -> tuple[int, bytes]:
            return 201, await self._created(kind, namespace, named, asked, asker)

        status, body = await (
            self._door.once.answer(once.scoped(key, asker), asked, work) if key else work()
        )
        return Response(msgspec.Raw(body), status_code=status)

    async def _created(
        self, kind: Kind[Any], namespace: str, document: Document, asked: str, asker: asking.Asker
    ) -> bytes:
        name = document["metadata"].get("name")
        if isinstance(name, str) and name:
            try:
                stored = await self._cluster.get(kind, namespace, name)
            except errors.NotFoundError:
                pass
            else:
                if asked and kinds.metadata_of(stored).annotation(keys.IDEMPOTENCY) == asked:
                    return stored  # our own, made before its answer was lost
                raise taken(kind, namespace, name)
        (applied,) = await self._door.submit([document], asker, only_new=True)
        return bytes(applied.object)


def _named(kind: Kind[Any], namespace: str, document: Document, asked: str) -> Document:
    """The document with what the path says of it, and with the mark of its request."""
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
    if asked:
        marked = metadata.get("annotations") or {}
        if isinstance(marked, dict):
            metadata["annotations"] = {**marked, keys.IDEMPOTENCY: asked}
        stem = metadata.get("generateName")
        if isinstance(stem, str) and stem and not metadata.get("name"):
            del metadata["generateName"]
            metadata["name"] = stem + asked[:8]  # a repetition makes the same name
    return {**named, "metadata": metadata}

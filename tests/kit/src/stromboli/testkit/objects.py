"""Objects as JSON, as users submit them, with unique names so that tests can share a real
cluster."""

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.testkit import records

Document = dict[str, Any]


CA_CONFIG_MAP = "kube-root-ca.crt"
"""Name of the ConfigMap that controllers of a cluster create in each namespace."""


def without_token_volume(volumes: list[Document]) -> list[Document]:
    """A pod's volumes without the token volume that the API server adds under a random name."""
    return [each for each in volumes if not each["name"].startswith("kube-api-access-")]


def unique(prefix: str) -> str:
    """A name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def read(raw: bytes) -> Document:
    """An object as a document."""
    document: Document = msgspec.json.decode(raw)
    return document


def make(
    kind: port.AnyKind, name: str, /, metadata: Mapping[str, Any] | None = None, **rest: Any
) -> bytes:
    """An object as JSON: its identity, further metadata, and its other fields."""
    return msgspec.json.encode(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {**({"name": name} if name else {}), **(metadata or {})},
            **rest,
        }
    )


def config_map(name: str, /, metadata: Mapping[str, Any] | None = None, **data: str) -> bytes:
    """A ConfigMap with this data, as JSON."""
    return make(kinds.CONFIG_MAPS, name, metadata, data=data)


def pod(name: str, /, metadata: Mapping[str, Any] | None = None, **spec: Any) -> bytes:
    """A pod of one container."""
    containers = [{"name": "main", "image": "busybox"}]
    return make(kinds.PODS, name, metadata, spec={"containers": containers, **spec})


def job(name: str, /, metadata: Mapping[str, Any] | None = None, **rest: Any) -> bytes:
    """A job of one task; ``rest`` are fields beside metadata and spec."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    spec = {"minAvailable": 1, "tasks": [{"name": "main", "replicas": 1, "template": template}]}
    return make(kinds.JOBS, name, metadata, **{"spec": spec, **rest})


def owner(kind: port.AnyKind, document: Document, **rest: Any) -> Document:
    """A reference to an owner."""
    metadata = document["metadata"]
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        **rest,
    }


def merge(**fields: Any) -> bytes:
    """A merge patch."""
    return msgspec.json.encode(fields)


def operations(*steps: tuple[str, str] | tuple[str, str, Any]) -> bytes:
    """A JSON patch: ("remove", path) or (op, path, value)."""
    return msgspec.json.encode(
        [dict(zip(("op", "path", "value"), step, strict=False)) for step in steps]
    )


class WatchedChange(msgspec.Struct, frozen=True):
    """A change that a watch sent."""

    type: str
    document: Document

    @property
    def version(self) -> str:
        """The object's resourceVersion."""
        version: str = self.document["metadata"]["resourceVersion"]
        return version


async def changes(
    cluster: port.Cluster,
    kind: port.AnyKind,
    version: str,
    namespace: str,
    until: Callable[[list[WatchedChange]], bool],
    within_s: float = records.DEADLINE_S,
) -> list[WatchedChange]:
    """The changes that a watch sends after ``version``, until ``until`` returns true for them.
    ``namespace``: for cluster-scoped kinds, a prefix of names. Resumes when the server closes the
    stream.

    The ConfigMap that every namespace has is left out."""
    seen: list[WatchedChange] = []
    async with asyncio.timeout(within_s):
        while not until(seen):  # also where no change is left to wait for
            stream = cluster.watch(kind, version)
            try:
                async for event in stream:
                    change = WatchedChange(event.type, read(event.object))
                    version = change.version
                    if event.type != "BOOKMARK" and _belongs(change.document, namespace):
                        seen.append(change)
                    if until(seen):
                        return seen
            finally:
                await stream.aclose()
    return seen


def _belongs(document: Document, namespace: str) -> bool:
    metadata = document["metadata"]
    if metadata["name"] == CA_CONFIG_MAP:
        return False
    place: str = metadata.get("namespace") or metadata["name"]
    return place.startswith(namespace)


async def eventually_gone(
    cluster: port.Cluster, kind: port.AnyKind, namespace: str, name: str, within_s: float
) -> None:
    """Return when the object does not exist any more."""
    await eventually(cluster, kind, namespace, name, lambda found: found is None, within_s)


async def eventually(
    cluster: port.Cluster,
    kind: port.AnyKind,
    namespace: str,
    name: str,
    holds: Callable[[Document | None], bool],
    within_s: float = records.DEADLINE_S,
) -> None:
    """Return when ``holds`` returns true for the object, or for None if it does not exist."""
    async with asyncio.timeout(within_s):
        while True:
            version = (await cluster.list(kind, namespace)).resource_version
            if holds(await _found(cluster, kind, namespace, name)):
                return
            await changes(cluster, kind, version, namespace or name, bool, within_s)


async def _found(
    cluster: port.Cluster, kind: port.AnyKind, namespace: str, name: str
) -> Document | None:
    try:
        return read(await cluster.get(kind, namespace, name))
    except errors.NotFoundError:
        return None

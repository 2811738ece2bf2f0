"""Projects objects of the API server to what snapshot topics carry.

The projection of an object contains the fields of our Struct of its kind. Its annotations are kept,
except kubectl's copy of the whole object and values so large that a tool uses them as storage. Of a
pod's volumes only those with a claim are kept: the API server adds a token volume to each pod, and
no service reads it. Workloads lose literal values of environment variables and other secrets
(``stromboli.shared.jobspec.redaction``). An object that cannot be decoded, or is too large for a
record, becomes a stub with the reason: its key is unknown, never absent.
"""

import hashlib
import typing
from typing import Any

import msgspec

from stromboli.shared import decoding, keys, topics
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.api.kinds import Kind
from stromboli.shared.formats import nesting
from stromboli.shared.jobspec import redaction
from stromboli.shared.messages import base, cluster

AnyKind = Kind[Any]

LARGEST_ANNOTATION_BYTES = 16 * 1024
"""Limit of an annotation's value. Ours are below 1 KiB; larger ones store a tool's state."""
LARGEST_VALUE_BYTES = topics.RECORD_BYTES - 64 * 1024
"""Limit of a record's value, with reserve for key and headers."""
RULES = "3"
"""Version of the rules in this module: after a change all snapshots are written again."""


class Identity(msgspec.Struct, frozen=True, gc=False):
    """An object's key, uid and version."""

    key: str
    uid: str
    version: int


class Observed(msgspec.Struct, frozen=True, gc=False):
    """An object as it is published. ``digest``: of all fields but its resourceVersion."""

    identity: Identity
    message: msgspec.Struct
    digest: bytes
    traceparent: str


class _Names(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _ObjectMeta(msgspec.Struct, frozen=True, gc=False):
    metadata: _Names


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""


class _PodPlacement(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_BARE = decoding.decoder_of(_ObjectMeta)
_PLACED = decoding.decoder_of(_PodPlacement)


def observe(kind: AnyKind, raw: bytes) -> Observed:
    """The projection of an object. Raises msgspec.DecodeError or ValueError if it has no name or
    version; an object that cannot be projected for another reason becomes a stub.
    """
    try:
        return _projected(kind.decode(raw))
    except Exception as error:  # one object must not stop the others of its kind
        return _stub(identify(raw), str(error) or type(error).__name__, _node(kind, raw))


def _projected(read: meta.Object) -> Observed:
    annotations = read.metadata.annotations or {}
    carried = _with_annotations(read, {k: v for k, v in annotations.items() if _carried(k, v)})
    message = redaction.without_values(_with_claims_only(carried))
    value = _unversioned(message)
    identity = _identity(read.metadata)
    if len(value) > LARGEST_VALUE_BYTES:
        reason = f"too large: {len(value)} bytes, at most {LARGEST_VALUE_BYTES} are allowed"
        return _stub(identity, reason, read.spec.node_name if isinstance(read, core.Pod) else "")
    return Observed(identity, message, _digest(value), annotations.get(keys.TRACEPARENT, ""))


def identify(raw: bytes) -> Identity:
    """The identity of an object, whatever its other fields. Raises msgspec.DecodeError, or
    ValueError for a version that is not a number.
    """
    try:
        return _identity(_BARE.decode(raw).metadata)
    except RecursionError:
        return _identity(_BARE.decode(nesting.outer(raw, levels=2)).metadata)


def digest(message: msgspec.Struct) -> bytes:
    """The digest of an object or stub, as in ``Observed``."""
    return _digest(_unversioned(message))


def signature(kind: AnyKind) -> str:
    """Identifies the fields that snapshots of this kind carry; they differ between versions of
    Stromboli.
    """
    lines = sorted(_fields(kind.struct))
    return hashlib.blake2b("\n".join([RULES, *lines]).encode(), digest_size=8).hexdigest()


def _fields(read: Any) -> set[str]:
    """A line for each field of a Struct and of all nested Structs."""
    if not (isinstance(read, type) and issubclass(read, msgspec.Struct)):
        return set().union(*(_fields(part) for part in typing.get_args(read)))
    fields = msgspec.structs.fields(read)
    lines = {f"{read.__name__}.{field.encode_name}: {field.type}" for field in fields}
    return lines.union(*(_fields(field.type) for field in fields))


def _identity(names: _Names | meta.ObjectMeta) -> Identity:
    key = f"{names.namespace}/{names.name}" if names.namespace else names.name
    return Identity(key, names.uid, int(names.resource_version or 0))


def _carried(name: str, value: str) -> bool:
    return name != keys.LAST_APPLIED and len(value.encode()) <= LARGEST_ANNOTATION_BYTES


def _with_annotations(read: meta.Object, kept: dict[str, str]) -> meta.Object:
    if len(kept) == len(read.metadata.annotations or {}):
        return read
    metadata = msgspec.structs.replace(read.metadata, annotations=kept or None)
    return msgspec.structs.replace(read, metadata=metadata)


def _with_claims_only(read: meta.Object) -> meta.Object:
    if not isinstance(read, core.Pod):
        return read
    kept = tuple(
        each
        for each in read.spec.volumes
        if each.persistent_volume_claim is not None or each.ephemeral is not None
    )
    if len(kept) == len(read.spec.volumes):
        return read
    return msgspec.structs.replace(read, spec=msgspec.structs.replace(read.spec, volumes=kept))


def _node(kind: AnyKind, raw: bytes) -> str:
    """The node of a pod that cannot be decoded, if that field can be read."""
    if kind != kinds.PODS:
        return ""
    try:
        return _PLACED.decode(raw).spec.node_name
    except (msgspec.DecodeError, RecursionError):
        return ""


def _stub(identity: Identity, reason: str, node: str = "") -> Observed:
    message = cluster.Unreadable(
        uid=identity.uid, resource_version=str(identity.version), reason=reason, node=node
    )
    return Observed(identity, message, digest(message), "")


def _unversioned(message: msgspec.Struct) -> bytes:
    """The message's bytes without its resourceVersion."""
    if isinstance(message, meta.Object):
        metadata = msgspec.structs.replace(message.metadata, resource_version="")
        return base.encode(msgspec.structs.replace(message, metadata=metadata))
    return base.encode(msgspec.structs.replace(message, resource_version=""))


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=16).digest()

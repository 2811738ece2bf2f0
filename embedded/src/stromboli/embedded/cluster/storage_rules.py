"""Processing of an object before it is stored, by kind. Pure functions.

Only defaults and checks that our services and their users can observe are implemented.
Source: the ``strategy.go`` of each resource in Kubernetes 1.34.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from stromboli.embedded.cluster import pods, quota_usage, timestamps
from stromboli.shared import decoding, errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster import port
from stromboli.shared.jobspec import crds

Document = dict[str, Any]

BODY_BYTES = 3 * 1024 * 1024
"""The size limit of a request, as in an API server."""
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAMED_BY_LABELS = (kinds.NAMESPACES, kinds.SERVICES)
_OF_THE_SERVER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_OF_THE_USER = ("labels", "annotations", "finalizers", "ownerReferences")


def parse(kind: port.AnyKind, namespace: str, body: bytes, what: str) -> Document:
    """Return the document to create, with the namespace of the request.

    Raises InvalidError, TooLargeError.
    """
    if len(body) > BODY_BYTES:
        raise errors.TooLargeError(what, f"{len(body)} bytes, at most {BODY_BYTES}")
    try:
        document = decoding.from_json(body, Document)
        document["metadata"] = metadata = _clean(document.get("metadata") or {})
    except (msgspec.DecodeError, AttributeError) as error:
        raise errors.InvalidError(what, f"the body is not an object: {error}") from None
    for field, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if document.get(field) != expected:
            raise errors.InvalidError(what, f"{field} is {document.get(field)!r}, not {expected!r}")
    if metadata.get("resourceVersion"):
        raise errors.InvalidError(
            what, "metadata.resourceVersion: it must not be set on a new object"
        )
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return document
    if not namespace or metadata.get("namespace", namespace) != namespace:
        raise errors.InvalidError(what, f"metadata.namespace is not {namespace!r}")
    metadata["namespace"] = namespace
    return document


def set_defaults(kind: port.AnyKind, document: Document) -> Document:
    """Return the object with the defaults of its kind. Idempotent."""
    if is_custom(kind):
        filled: Document = crds.apply_defaults(kind.group, kind.kind, document)
        return filled
    if kind is kinds.PODS:
        pods.set_defaults(document)
    return document


def prepare_for_create(kind: port.AnyKind, document: Document, uid: str, now: datetime) -> None:
    """Set server-side metadata of a new object and remove fields its creator may not set."""
    metadata = _clean(document["metadata"])
    for field in _OF_THE_SERVER:
        metadata.pop(field, None)
    metadata |= {"uid": uid, "creationTimestamp": timestamps.timestamp(now)}
    document["metadata"] = metadata
    if is_custom(kind) or kind is kinds.PODS:
        metadata["generation"] = 1
    if kind is kinds.PODS:
        document["status"] = {"phase": "Pending"}
    elif kind is kinds.NAMESPACES:
        document["spec"] = {"finalizers": ["kubernetes"]}
        document["status"] = {"phase": "Active"}
        labels = {"kubernetes.io/metadata.name": metadata["name"]}
        metadata["labels"] = (metadata.get("labels") or {}) | labels
    elif kind.status_subresource and kind is not kinds.NODES:  # nodes register with a status
        document.pop("status", None)


def prepare_for_update(
    kind: port.AnyKind, old: Document, new: Document, subresource: str
) -> Document:
    """Return the new object without the changes that this endpoint may not make.

    The main endpoint ignores the status if the kind has a status subresource; that endpoint ignores
    everything else. Server-side metadata is kept; the generation grows if anything but metadata
    changes.
    """
    if subresource == "status":
        return _with_status(old, new)
    result = {**new, "metadata": _clean(new["metadata"])}
    metadata = result["metadata"]
    for field in _OF_THE_SERVER:
        metadata.pop(field, None)
        if field in old["metadata"]:
            metadata[field] = old["metadata"][field]
    if kind.status_subresource:
        result = _with_status(result, old)
    if "generation" in metadata and _desired_state(result) != _desired_state(old):
        metadata["generation"] += 1
    return result


def validate(kind: port.AnyKind, document: Document, what: str) -> None:
    """Raise InvalidError that lists all violations of an object."""
    if is_custom(kind):
        problems = [each.message for each in crds.violations(kind.group, kind.kind, document)]
    else:
        problems = list(_type_faults(kind, document))
    if not problems:
        problems = list(_metadata_faults(kind, document["metadata"]))
        if kind is kinds.PODS:
            problems += pods.validation_errors(document)
        elif kind is kinds.RESOURCE_QUOTAS:
            problems += quota_usage.faults(document)
    if problems:
        raise errors.InvalidError(what, "; ".join(problems))


def check_preconditions(old: Document, new: Document, what: str) -> None:
    """Raise ConflictError if a patch names another resourceVersion or uid, InvalidError if it
    changes the object's identity or the result is not an object.
    """
    after = new.get("metadata")
    if not isinstance(after, dict):
        raise errors.InvalidError(what, "metadata is not an object")
    for field in ("resourceVersion", "uid"):
        was = old["metadata"][field]
        if after.get(field, was) != was:
            raise errors.ConflictError(what, f"metadata.{field} is {was}, not {after[field]}")
    for field in ("name", "namespace"):
        if after.get(field, "") != old["metadata"].get(field, ""):
            raise errors.InvalidError(what, f"metadata.{field} is immutable")
    for field in ("apiVersion", "kind"):
        if new.get(field) != old[field]:
            raise errors.InvalidError(what, f"{field} is immutable")


def validate_update(kind: port.AnyKind, old: Document, new: Document, what: str) -> None:
    """Raise InvalidError for a forbidden change."""
    before, after = old["metadata"], new["metadata"]
    late = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
    if late and "deletionTimestamp" in before:
        added = ", ".join(sorted(late))
        reason = f"metadata.finalizers: {added} cannot be added: the object is being deleted"
        raise errors.InvalidError(what, reason)
    if kind is kinds.PODS:
        for fault in pods.update_errors(old, new):
            raise errors.InvalidError(what, fault)


def is_custom(kind: port.AnyKind) -> bool:
    """Return whether the kind is a custom resource (volcano.sh), which has a schema."""
    return kind.group.endswith("volcano.sh")


def _clean(metadata: Document) -> Document:
    """Return the metadata without null values and without empty fields of ``_OF_THE_USER``."""
    return {
        name: value
        for name, value in metadata.items()
        if value is not None and not (name in _OF_THE_USER and not value)
    }


def _with_status(document: Document, source: Document) -> Document:
    result = {name: value for name, value in document.items() if name != "status"}
    if "status" in source:
        result["status"] = source["status"]
    return result


def _desired_state(document: Document) -> Document:
    return {name: value for name, value in document.items() if name != "metadata"}


def _type_faults(kind: port.AnyKind, document: Document) -> Iterable[str]:
    try:
        decoding.convert(document, kind.struct)
        decoding.convert(document, meta.Object)
    except msgspec.ValidationError as error:
        yield str(error)


def _metadata_faults(kind: port.AnyKind, metadata: Document) -> Iterable[str]:
    name = metadata.get("name", "")
    is_label = kind in _NAMED_BY_LABELS
    form, longest = (_LABEL, 63) if is_label else (_SUBDOMAIN, 253)
    if not form.fullmatch(name) or len(name) > longest:
        signs = "digits and '-'" if is_label else "digits, '-' and '.'"
        yield (
            f"metadata.name: {name!r} is not a name of lower case letters, {signs}, {longest} "
            "characters at most"
        )
    owners = metadata.get("ownerReferences", ())
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield f"metadata.ownerReferences[{index}].{field}: is missing"
    if sum(bool(owner.get("controller")) for owner in owners) > 1:
        yield "metadata.ownerReferences: only one may be the controller"

"""Deletion of an object: immediate, or marked until finalizers and the kubelet release it. Pure.

Source: ``BeforeDelete`` in ``registry/rest/delete.go`` of Kubernetes 1.34.
"""

from datetime import datetime, timedelta
from typing import Any

from stromboli.embedded.cluster import pods, timestamps
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port

Document = dict[str, Any]


def is_released(document: Document) -> bool:
    """Return whether the object is deleted and has no finalizer and no grace period left."""
    metadata = document["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and metadata.get("deletionGracePeriodSeconds", 0) == 0
    )


def mark(
    kind: port.AnyKind, document: Document, asked_s: int | None, now: datetime
) -> Document | None:
    """Return the object marked for deletion; None if it is removed immediately, the object itself
    if nothing changes.

    ``asked_s``: the requested grace period; None for the object's own. A repeated deletion can only
    shorten the grace period.
    """
    metadata = document["metadata"]
    if "deletionTimestamp" not in metadata:
        left_s = pods.grace_s(document, asked_s) if kind is kinds.PODS else 0
        return _marked(document, left_s, now, metadata.get("generation", 0) + 1)
    if asked_s is None or asked_s >= metadata.get("deletionGracePeriodSeconds", 0):
        return document
    return _marked(document, asked_s, now, metadata.get("generation", 0))


def _marked(document: Document, left_s: int, now: datetime, generation: int) -> Document | None:
    metadata = {
        **document["metadata"],
        "deletionTimestamp": timestamps.timestamp(now + timedelta(seconds=left_s)),
        "deletionGracePeriodSeconds": left_s,
    }
    if "generation" in metadata:
        metadata["generation"] = generation
    marked = {**document, "metadata": metadata}
    return None if is_released(marked) else marked

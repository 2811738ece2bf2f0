"""Calls admission hooks as an API server calls webhooks.

Source: ``admission.k8s.io/v1`` and "Dynamic Admission Control" of the Kubernetes documentation.
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stromboli.embedded.cluster import patches
from stromboli.embedded.cluster.webhooks import Operation, Webhook
from stromboli.shared import decoding, errors
from stromboli.shared.cluster import port

Document = dict[str, Any]

OWN_NAME = "stromboli:embedded"
"""The user name of all writes: the embedded cluster has no other users."""
USER = {"username": OWN_NAME, "groups": ["system:authenticated"]}
"""The user in reviews: every client of the embedded cluster is in this process."""


class _Status(msgspec.Struct, frozen=True):
    message: str = ""


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: str = ""


class _Review(msgspec.Struct, frozen=True):
    response: _Response


_REVIEW = decoding.decoder_of(_Review)


class AdmissionReviews:
    """Calls the given hooks in order; the sequence may grow between calls."""

    def __init__(self, hooks: Sequence[Webhook], ids: Callable[[], str]) -> None:
        self._hooks = hooks
        self._ids = ids

    async def mutate(
        self,
        kind: port.AnyKind,
        operation: Operation,
        document: Document,
        old: Document | None,
        what: str,
    ) -> Document:
        """Return the object after all mutating hooks, one after another. Raises like
        ``validate``.
        """
        for hook in self._of(kind, operation, mutating=True):
            answer = await self._ask(hook, operation, document, old, what)
            if answer is not None and answer.patch:
                patch = base64.b64decode(answer.patch)
                document = patches.apply(document, patch, "json", f"{what}: webhook {hook.name}")
        return document

    async def validate(
        self,
        kind: port.AnyKind,
        operation: Operation,
        document: Document,
        old: Document | None,
        what: str,
    ) -> None:
        """Return if all validating hooks allow the object.

        Raises InvalidError with the message of the hook, TransientError if a required hook did not
        answer.
        """
        for hook in self._of(kind, operation, mutating=False):
            await self._ask(hook, operation, document, old, what)

    async def delete(self, kind: port.AnyKind, old: Document, what: str) -> None:
        """Return if all hooks allow the deletion. Raises like ``validate``."""
        for mutating in (True, False):
            for hook in self._of(kind, "DELETE", mutating=mutating):
                await self._ask(hook, "DELETE", None, old, what)

    def _of(self, kind: port.AnyKind, operation: Operation, *, mutating: bool) -> list[Webhook]:
        return [
            hook
            for hook in self._hooks
            if hook.kind == kind and operation in hook.operations and hook.mutating == mutating
        ]

    async def _ask(
        self,
        hook: Webhook,
        operation: Operation,
        document: Document | None,
        old: Document | None,
        what: str,
    ) -> _Response | None:
        uid = self._ids()
        try:
            async with asyncio.timeout(hook.timeout_s):
                body = await hook.call(_request(hook.kind, operation, document, old, uid))
            answer = _REVIEW.decode(body).response
            if answer.uid != uid:
                raise ValueError(f"the response is for {answer.uid}, not for {uid}")
        except Exception as error:  # an exception of a hook is a failed call, not our bug
            if hook.failure_policy == "Ignore":
                return None
            reason = f"failed calling webhook {hook.name!r}: {str(error) or type(error).__name__}"
            raise errors.TransientError(what, reason) from error
        if not answer.allowed:
            detail = answer.status.message if answer.status else "without explanation"
            reason = f"admission webhook {hook.name!r} denied the request: {detail}"
            raise errors.InvalidError(what, reason)
        return answer


def _request(
    kind: port.AnyKind,
    operation: Operation,
    document: Document | None,
    old: Document | None,
    uid: str,
) -> bytes:
    metadata = (document or old or {})["metadata"]
    group_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    request = {
        "uid": uid,
        "kind": group_kind,
        "resource": resource,
        "requestKind": group_kind,
        "requestResource": resource,
        "name": metadata.get("name", ""),
        "namespace": metadata.get("namespace", ""),
        "operation": operation,
        "userInfo": USER,
        "object": document,
        "oldObject": old,
        "dryRun": False,
        "options": None,
    }
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )

"""The interfaces that the embedded cluster calls: admission hooks without HTTP, and kubelets."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol

import msgspec

from stromboli.shared.api.kinds import Kind
from stromboli.shared.cluster import port

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a webhook configuration.

    ``call`` takes an ``AdmissionReview`` (``admission.k8s.io/v1``) with a request, as JSON, and
    returns one with a response. It is called for ``operations`` on objects of ``kind``, never on
    subresources. A ``mutating`` hook may return a JSON patch.
    ``failure_policy`` applies to errors, timeouts (``timeout_s``) and malformed responses: ``Fail``
    rejects the request, ``Ignore`` skips the hook.
    """

    kind: Kind[Any]
    operations: frozenset[Operation]
    mutating: bool
    call: Callable[[bytes], Awaitable[bytes]]
    name: str = "embedded.stromboli.sh"
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_s: float = 10.0


class Kubelet(Protocol):
    """The log endpoint of a node."""

    def logs(
        self, uid: str, query: port.LogQuery
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes, None]]:
        """Like ``port.Cluster.logs``, for the pod with this uid and one of its containers."""

    def deleted_logs(
        self, namespace: str, name: str, query: port.LogQuery
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes, None]]:
        """The output of the deleted pod with ``query.uid``. Raises NotFoundError if the node does
        not keep it."""

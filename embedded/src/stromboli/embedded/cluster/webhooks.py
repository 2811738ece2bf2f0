"""Whom the embedded cluster asks: webhooks without the web, and kubelets without a wire."""

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
    answers one with a response. It is asked for ``operations`` on objects of ``kind`` themselves,
    never on their subresources. A ``mutating`` hook may answer with a JSON patch.
    ``failure_policy``: what an error, no answer within ``timeout_s`` or a wrong answer means:
    ``Fail`` refuses the request, ``Ignore`` goes on as if the hook were not there.
    """

    kind: Kind[Any]
    operations: frozenset[Operation]
    mutating: bool
    call: Callable[[bytes], Awaitable[bytes]]
    name: str = "embedded.stromboli.sh"
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    timeout_s: float = 10.0


class Kubelet(Protocol):
    """A node as the cluster sees it when somebody asks for what its containers wrote."""

    def logs(
        self, uid: str, query: port.LogQuery
    ) -> AbstractAsyncContextManager[AsyncGenerator[bytes, None]]:
        """As ``port.Cluster.logs``, of the pod with this uid and a container that it has."""

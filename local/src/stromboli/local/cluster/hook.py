"""A webhook without the web: what the embedded cluster asks before it stores."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from stromboli.shared.api.kinds import Kind

Operation = Literal["CREATE", "UPDATE", "DELETE"]


class Hook(msgspec.Struct, frozen=True, kw_only=True):
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

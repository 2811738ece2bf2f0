"""Why an object is pending, recorded on the object for as long as the reason holds.

For a job, it is the reason why its pods are not created. Kubernetes Events contain the same reason
but expire after an hour, while a job may be pending for weeks. It is an annotation and not a status
field: the CRD of another system would drop the field, and each reconcile would write it again.
"""

from collections.abc import Iterable
from typing import Any

from stromboli.controller.core import commands, manifests
from stromboli.shared import keys
from stromboli.shared.api import kinds, meta


def reasons(pairs: Iterable[tuple[str, str]]) -> str:
    """Reasons and messages in one line; empty if there are none."""
    return "; ".join(f"{reason}: {message}" for reason, message in pairs)


def noted(kind: kinds.Kind[Any], of: meta.Object, why: str) -> commands.Stage:
    """The patch that records the reason, or removes it if there is none; empty if nothing
    changes."""
    before = of.metadata.annotation(keys.HELD) or ""
    if before == why:
        return ()
    if why:
        return (manifests.annotated(kind, of, keys.HELD, why),)
    return (manifests.unannotated(kind, of, keys.HELD),)

"""Queues: the two that always exist, and the state that others look at.

Source: spec/scheduling.md 2 (``root`` and ``default`` are made if missing) and spec/jobs.md 7.2 (an
empty state is Open).
"""

from datetime import datetime
from typing import Any

from stromboli.controller.core import commands, manifest, view
from stromboli.shared import snapshot
from stromboli.shared.api import kinds

ALWAYS: dict[str, dict[str, Any]] = {
    "root": {"weight": 1, "reclaimable": False},
    "default": {"weight": 1, "reclaimable": True},
}
"""Queue -> spec of those that are made when they are missing."""
OPEN = "Open"


def reconcile(picture: view.View, name: str, now: datetime) -> commands.Plan:
    """Make the queue if it always exists; open it if it has no state."""
    state = picture.state(kinds.QUEUES, name)
    if isinstance(state, snapshot.Unknown):
        return ()
    queue = picture.queue(name)
    if queue is None:
        return ((_create(name),),) if name in ALWAYS else ()
    if queue.status.state or picture.is_going(queue):
        return ()
    version = {"resourceVersion": queue.metadata.resource_version}
    patch = commands.Patch(
        kind=kinds.QUEUES,
        namespace="",
        name=name,
        uid=queue.metadata.uid,
        patch=manifest.encode({"metadata": version, "status": {"state": OPEN}}),
        patch_type="merge",
        subresource="status",
    )
    return ((patch,),)


def _create(name: str) -> commands.Create:
    body = {
        "apiVersion": kinds.QUEUES.api_version,
        "kind": kinds.QUEUES.kind,
        "metadata": {"name": name},
        "spec": ALWAYS[name],
    }
    return commands.Create(kind=kinds.QUEUES, namespace="", name=name, body=manifest.encode(body))

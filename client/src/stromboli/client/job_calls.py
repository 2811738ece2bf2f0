"""Changes of existing jobs and nodes as calls, beside those of ``calls``. Sends nothing."""

from collections.abc import Mapping

import msgspec

from stromboli.client import calls
from stromboli.client.responses import Applied


def change(
    namespace: str,
    name: str,
    replicas: Mapping[str, int] | None = None,
    min_available: int | None = None,
    priority_class: str | None = None,
) -> calls.Call[Applied]:
    """Set replicas of tasks by name, minAvailable and the PriorityClass of a job in one patch;
    None leaves a field unchanged."""
    body: dict[str, object] = {"replicas": dict(replicas)} if replicas else {}
    body |= {} if min_available is None else {"minAvailable": min_available}
    body |= {} if priority_class is None else {"priorityClassName": priority_class}
    return calls.Call(
        method="PATCH",
        path=calls.job(namespace, name).path,
        what=f"job {namespace}/{name}",
        read=msgspec.json.Decoder(Applied).decode,
        body=msgspec.json.encode(body),
    )


def cordon(node: str, *, is_schedulable: bool = False) -> calls.Call[bytes]:
    """Bind no new pods to a node, or bind pods again; the response is the node."""
    verb = "uncordon" if is_schedulable else "cordon"
    path = f"{calls.node(node).path}/{verb}"
    return calls.Call(method="POST", path=path, what=f"node {node}", read=bytes)

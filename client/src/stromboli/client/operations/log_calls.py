"""Requests about logs of pods, as ``Call`` values. Sends nothing."""

from datetime import datetime

from stromboli.client.operations import calls


def log(
    namespace: str,
    pod: str,
    container: str = "",
    *,
    follow: bool = False,
    previous: bool = False,
    tail_lines: int | None = None,
    uid: str = "",
    timestamps: bool = False,
    since: datetime | None = None,
) -> calls.Call[bytes]:
    """The output of a pod's container, as a stream; the container may be omitted if there is only
    one. ``timestamps``: each line begins with its time; ``since``: only lines from then on."""
    query = {"container": container} if container else {}
    query |= {"follow": "true"} if follow else {}
    query |= {"previous": "true"} if previous else {}
    query |= {"uid": uid} if uid else {}
    query |= {"timestamps": "true"} if timestamps else {}
    query |= {"sinceTime": since.isoformat()} if since is not None else {}
    query |= {} if tail_lines is None else {"tailLines": str(tail_lines)}
    return calls.Call(
        method="GET",
        path=f"{calls.pod(namespace, pod).path}/log",
        what=f"pod {namespace}/{pod}",
        read=bytes,
        query=query,
    )

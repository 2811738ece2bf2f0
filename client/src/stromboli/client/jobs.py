"""Creates a job of one task and one container. Pure."""

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from stromboli.client import errors
from stromboli.shared.api import batch, meta


def job(
    name: str,
    *,
    image: str,
    command: Sequence[str] = (),
    replicas: int = 1,
    min_available: int = 0,
    requests: Mapping[str, str] | None = None,
    queue: str = "",
    annotations: Mapping[str, str] | None = None,
) -> batch.Job:
    """A job of ``replicas`` equal pods, of which ``min_available`` (default: all) start together.

    ``requests``: the requests of each pod, such as ``{"cpu": "1", "nvidia.com/gpu": "8"}``;
    ``annotations`` are set on its pods. With an empty ``queue`` the server chooses. Jobs of several
    tasks are ``batch.Job`` of ``stromboli.shared.api``, or dictionaries as in YAML. Raises
    InvalidArgumentError if ``command`` is one string.
    """
    if isinstance(command, str):
        raise errors.InvalidArgumentError(
            f"job {name}",
            f"command is the string {command!r}; pass a list of arguments, such as "
            f"{shlex.split(command)!r}, or ['sh', '-c', ...] for a shell",
        )
    container: dict[str, object] = {"name": "main", "image": image}
    if command:
        container["command"] = list(command)
    if requests:
        container["resources"] = {"requests": dict(requests)}
    pod = msgspec.json.encode({"restartPolicy": "Never", "containers": [container]})
    template = batch.PodTemplate(
        metadata=meta.ObjectMeta(annotations=dict(annotations) if annotations else None),
        spec=msgspec.Raw(pod),
    )
    spec = batch.JobSpec(
        tasks=(batch.TaskSpec(name="main", replicas=replicas, template=template),),
        min_available=min_available,
    )
    if queue:
        spec = msgspec.structs.replace(spec, queue=queue)
    return batch.Job(metadata=meta.ObjectMeta(name=name), spec=spec)

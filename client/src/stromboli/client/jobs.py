"""Creates a job of one task and one container. Pure."""

import math
import shlex
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from stromboli.client import errors
from stromboli.shared.api import batch, meta
from stromboli.shared.formats import indexes

GPU = "nvidia.com/gpu"
"""The resource that ``gpus`` counts."""


def job(
    name: str,
    *,
    image: str,
    command: Sequence[str] = (),
    replicas: int = 1,
    min_available: int = 0,
    requests: Mapping[str, str] | None = None,
    gpus: int = 0,
    env: Mapping[str, str] | None = None,
    working_dir: str = "",
    time_limit: timedelta | None = None,
    array: str = "",
    queue: str = "",
    priority_class: str = "",
    annotations: Mapping[str, str] | None = None,
    data: Sequence[batch.DataSet] = (),
) -> batch.Job:
    """A job of ``replicas`` equal pods; at least ``min_available`` start together (default: all, or
    1 for an array).

    ``requests``: the requests of each pod, such as ``{"cpu": "1", "nvidia.com/gpu": "8"}``;
    ``gpus`` adds ``nvidia.com/gpu`` to them. ``time_limit``: the job's deadline, which is also its
    expected run time. ``array``: a pod for each index, ``0-999%50`` for 50 at the same time; each
    reads ``STROM_ARRAY_INDEX``. ``annotations`` are set on its pods. ``data``: the data sets that
    its pods read. With an empty ``queue`` the server chooses. For a job of several tasks, build a
    ``batch.Job`` of ``stromboli.shared.api``, or a dictionary with the fields of a manifest. Raises
    InvalidArgumentError if ``command`` is one string, and for an invalid array.
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
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    if working_dir:
        container["workingDir"] = working_dir
    devices = {GPU: str(gpus)} if gpus else {}
    if requests or devices:
        # Kubernetes accepts requests for devices only with equal limits.
        limits = {"limits": devices} if devices else {}
        container["resources"] = {"requests": {**(requests or {}), **devices}, **limits}
    pod = msgspec.json.encode({"restartPolicy": "Never", "containers": [container]})
    template = batch.PodTemplate(
        metadata=meta.ObjectMeta(annotations=dict(annotations) if annotations else None),
        spec=msgspec.Raw(pod),
    )
    written, replicas = _array(name, array, replicas) if array else ("", replicas)
    spec = batch.JobSpec(
        tasks=(batch.TaskSpec(name="main", replicas=replicas, template=template),),
        min_available=min_available or (1 if array else 0),
        priority_class_name=priority_class,
        array=batch.ArraySpec(indexes=written) if array else None,
        data_sets=tuple(data),
    )
    if time_limit is not None:
        seconds = math.ceil(time_limit.total_seconds())
        spec = msgspec.structs.replace(
            spec, active_deadline_seconds=seconds, running_estimate=f"{seconds}s"
        )
    if queue:
        spec = msgspec.structs.replace(spec, queue=queue)
    return batch.Job(metadata=meta.ObjectMeta(name=name), spec=spec)


def _array(name: str, array: str, replicas: int) -> tuple[str, int]:
    """The indexes and how many of them run at the same time. Raises InvalidArgumentError."""
    written, percent, at_once = array.partition("%")
    problem = indexes.problem(written)
    if not problem and percent and not (at_once.isdecimal() and int(at_once)):
        problem = f"{at_once!r} after % is not a number; write 0-999%50"
    if not problem and replicas != 1:
        problem = "leave out replicas; the number of concurrent pods is written as 0-999%50"
    if problem:
        raise errors.InvalidArgumentError(f"job {name}", f"array {array!r}: {problem}")
    count = indexes.count(written)
    return written, min(int(at_once), count) if percent else count

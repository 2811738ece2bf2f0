"""The volumes of data sets in pods of process nodes.

A pod names a copy in the cache of an ordinary node; each process node has a cache folder of its
own, so the path is replaced.
"""

import re
from collections.abc import Callable, Mapping

import msgspec

from stromboli.embedded.processes.core import pod as pods
from stromboli.embedded.processes.core import volumes
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data

_PATH = re.compile(
    f"{re.escape(data_sets.DEFAULT_ROOT)}/([0-9a-f]{{32}})/{re.escape(data_sets.CONTENT)}"
)


def key_of(volume: pods.Volume) -> str:
    """The content key of the copy that a volume mounts; empty for other volumes."""
    match = _PATH.fullmatch(volume.host_path.path) if volume.host_path is not None else None
    return match[1] if match else ""


def keys_of(pod: pods.Pod) -> frozenset[str]:
    """The content keys of all copies that a pod mounts."""
    return frozenset(filter(None, map(key_of, pod.spec.volumes)))


def relocated(
    pod: pods.Pod,
    contents: Mapping[str, volumes.VolumeContent],
    path_of: Callable[[str], str],
) -> dict[str, volumes.VolumeContent]:
    """The contents of volumes with the paths of this node's cache. ``path_of``: content key ->
    path of an existing copy. Raises the errors of ``path_of``."""
    volume_contents = dict(contents)
    for volume in pod.spec.volumes:
        if key := key_of(volume):
            host = pods.HostPath(path=path_of(key), type="Directory")
            volume_contents[volume.name] = msgspec.structs.replace(contents[volume.name], host=host)
    return volume_contents


def wanted(pod: pods.Pod) -> tuple[data.WantedCopy, ...]:
    """The copies that a pod of this node needs. Raises ValueError if its annotation is
    unreadable."""
    mounted = keys_of(pod)
    return tuple(
        data.WantedCopy(
            key=request.key,
            uri=request.uri,
            digest=request.digest,
            bytes=request.bytes,
            pinned=True,
            reason=f"pod {pod.metadata.key}",
        )
        for request in data_sets.requests_of(pod.metadata.annotations)
        if request.key in mounted
    )

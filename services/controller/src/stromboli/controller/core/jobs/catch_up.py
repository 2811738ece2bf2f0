"""Whether the picture of a job is as new as what was told of it.

The controller before this one took in its own writes ahead of the topics, and the monitor may lag
behind them. A pod that was told of and is not in the picture is then not gone, and a phase in it
not the job's: both would lead to facts that are none, and to policies that act on them. So whatever
the picture has not, or has older, is read from the API server before the job's first step. A
picture only grows newer, so each job is looked at once in a term.
"""

from collections.abc import Iterator
from typing import Any

from stromboli.controller.core import commands
from stromboli.controller.core.store import cache, event_history
from stromboli.shared import snapshot
from stromboli.shared.api import kinds


def catching_up(picture: cache.Cache, key: str) -> commands.Stage:
    """What has to be read before anything is decided about a job. O(its pods) in its first step."""
    told = picture.published.inherited.get(key)
    if told is None:
        return ()
    reads = tuple(_reads(picture, key, told))
    if not reads:
        del picture.published.inherited[key]
    return reads


def _reads(
    picture: cache.Cache, key: str, told: event_history.EventHistory
) -> Iterator[commands.CatchUp]:
    namespace, _, name = key.partition("/")
    if _is_behind(picture, kinds.JOBS, key, told.object_version):
        yield _read(kinds.JOBS, namespace, name, told.uid, key)
    for uid, task in told.tasks.items():
        pod = f"{namespace}/{task.pod}"
        if task.state not in event_history.OVER and _is_behind(
            picture, kinds.PODS, pod, task.object_version
        ):
            yield _read(kinds.PODS, namespace, task.pod, uid, key)


def _is_behind(picture: cache.Cache, kind: kinds.Kind[Any], key: str, version: int) -> bool:
    """``version``: the one that was told, 0 once it was looked for."""
    found = picture.state(kind, key)
    if version == 0 or isinstance(found, snapshot.Unknown):
        return False
    return found is None or found.metadata.version < version


def _read(kind: kinds.Kind[Any], namespace: str, name: str, uid: str, job: str) -> commands.CatchUp:
    return commands.CatchUp(kind=kind, namespace=namespace, name=name, uid=uid, job=job)

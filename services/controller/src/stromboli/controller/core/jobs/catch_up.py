"""Whether the cache of a job is as new as what was told of it.

The controller before this one took in its own writes ahead of the topics, and the monitor may lag
behind them. A pod that was told of and is not in the cache is then not gone, and a phase in it
not the job's: both would lead to facts that are none, and to policies that act on them. So whatever
the cache has not, or has older, is read from the API server before the job's first step. A
cache only grows newer, so each job is looked at once in a term.
"""

from collections.abc import Container, Iterator
from typing import Any

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import snapshot
from stromboli.shared.api import kinds


def reads_needed(cache: controller_cache.ControllerCache, key: str) -> commands.Stage:
    """What has to be read before anything is decided about a job. O(its pods) in its first step."""
    read = cache.published.loaded.get(key)
    if read is None:
        return ()
    job = cache.published.jobs.get(key)
    reads = () if job is None else tuple(_reads(cache, key, job, read))
    if not reads:
        del cache.published.loaded[key]
    return reads


def _reads(
    cache: controller_cache.ControllerCache,
    key: str,
    job: event_history.JobHistory,
    read: Container[str],
) -> Iterator[commands.CatchUp]:
    """``read``: uids of the objects that were read already."""
    namespace, _, name = key.partition("/")
    if job.uid not in read and _is_behind(cache, kinds.JOBS, key, job.object_version):
        yield _read(kinds.JOBS, namespace, name, job.uid, key)
    for uid, task in job.tasks.items():
        if uid in read or task.state in event_history.OVER:
            continue
        if _is_behind(cache, kinds.PODS, f"{namespace}/{task.pod}", task.object_version):
            yield _read(kinds.PODS, namespace, task.pod, uid, key)


def _is_behind(
    cache: controller_cache.ControllerCache, kind: kinds.Kind[Any], key: str, version: int
) -> bool:
    """Whether the cached object is missing or older than ``version``; 0 is unknown."""
    found = cache.state(kind, key)
    if version == 0 or isinstance(found, snapshot.Unknown):
        return False
    return found is None or found.metadata.version < version


def _read(kind: kinds.Kind[Any], namespace: str, name: str, uid: str, job: str) -> commands.CatchUp:
    return commands.CatchUp(kind=kind, namespace=namespace, name=name, uid=uid, job=job)

"""Detects whether the cached objects of a job lag behind published events, and reads them.

The previous leader cached its own writes ahead of the topics, and the monitor may lag behind them.
So a pod that has a published event but is missing in the cache may still exist, and a cached phase
may be outdated. Both would lead to false events, and to policies that react to them. Therefore
every object that is missing or older in the cache is read from the API server before the job's
first reconcile. Cached objects only become newer, so each job is checked once in a term.
"""

from collections.abc import Container, Iterator
from typing import Any

from stromboli.controller.core import commands
from stromboli.controller.core.store import controller_cache, event_history
from stromboli.shared import snapshot
from stromboli.shared.api import kinds


def reads_needed(cache: controller_cache.ControllerCache, key: str) -> commands.Stage:
    """The reads that must precede any decision about a job; empty after its first reconcile, which
    costs O(pods)."""
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
    """The reads that are still needed. ``read``: uids of the objects that were read already."""
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
    """Whether the cached object is missing or older than ``version``; version 0 means unknown."""
    state = cache.state(kind, key)
    if version == 0 or isinstance(state, snapshot.Unknown):
        return False
    return state is None or state.metadata.version < version


def _read(kind: kinds.Kind[Any], namespace: str, name: str, uid: str, job: str) -> commands.CatchUp:
    return commands.CatchUp(kind=kind, namespace=namespace, name=name, uid=uid, job=job)

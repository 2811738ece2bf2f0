"""The data caches of process nodes: each node has one, in a folder of its own.

A cache keeps the copies that the monitor's answer to the node's report lists, and those that the
node's own pods need, so that a pod gets its data even if another scheduler has placed it. Without a
monitor (process nodes of a real API server) a cache keeps only the copies for the node's pods.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from stromboli.embedded.processes.core import data_volumes, environment
from stromboli.embedded.processes.core import pod as pods
from stromboli.monitor.data_cache import entries
from stromboli.monitor.data_cache.cache import NodeCache
from stromboli.monitor.data_cache.settings import CacheSettings
from stromboli.shared import decoding, errors
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import base, data
from stromboli.shared.runtime import runtime, telemetry

Exchange = Callable[[str, bytes], Awaitable[bytes]]
"""Sends the report of a node; returns the encoded ``DataWanted``. Raises ExternalError."""
RETRY_S = 5.0
"""Seconds until the next pass after an error of the disk."""
_DECODER = decoding.decoder_of(data.DataWanted)


class DataCaches:
    """The caches of ``nodes``, below ``folder``. ``settings``: of each cache, except its root."""

    def __init__(
        self,
        nodes: Sequence[str],
        folder: Path,
        settings: CacheSettings,
        clock: runtime.Clock,
        exchange: Exchange | None,
    ) -> None:
        self._folder = folder
        self._exchange = exchange
        self._due = {node: asyncio.Event() for node in nodes}
        self._answers: dict[str, data.DataWanted] = {}
        self._reports: dict[str, data.DataObserved] = {}
        """Node -> its last report: a cache may be busy for seconds, and the event loop must not
        wait."""
        self._pods: dict[str, pods.Pod] = {}
        """Uid -> a pod with data sets that runs, or will run, on one of the nodes."""
        self._unreadable: set[str] = set()
        self._troubles: dict[str, str] = {}
        self._rejected: set[str] = set()
        """Nodes whose last report was not accepted."""
        self._caches = {
            node: NodeCache(
                node,
                msgspec.structs.replace(settings, root=str(folder / node)),
                clock,
                functools.partial(self._wake, node),
            )
            for node in nodes
        }
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> None:
        """Serve until cancelled. Raises CacheFolderError if a folder cannot be used."""
        self._loop = asyncio.get_running_loop()
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        try:
            async with asyncio.TaskGroup() as group:
                for node, cache in self._caches.items():
                    group.create_task(self._serve(node, cache))
        finally:
            for cache in self._caches.values():
                cache.close()

    def path_of(self, node: str, key: str) -> str:
        """The path of a copy. Raises MissingDataError with the reason while the copy does not
        exist: the pod's containers wait."""
        path = data_sets.volume_path(str(self._folder / node), key)
        if not Path(path).is_dir():
            raise environment.MissingDataError(
                f"data set {entries.state_of(self._reports.get(node), key)}"
            )
        return path

    def see(self, pod: pods.Pod, *, is_over: bool) -> None:
        """Record a pod of one of the nodes; ``is_over``: it no longer uses its data."""
        uid = pod.metadata.uid
        if is_over:
            self._unreadable.discard(uid)
            changed = self._pods.pop(uid, None) is not None
        else:
            changed = uid not in self._pods and bool(data_volumes.keys_of(pod))
            if changed:
                self._pods[uid] = pod
        if changed:
            self._due[pod.spec.node_name].set()

    async def _serve(self, node: str, cache: NodeCache) -> None:
        due = self._due[node]
        await asyncio.to_thread(cache.open)
        while True:
            due.clear()
            own = [each for each in self._pods.values() if each.spec.node_name == node]
            wanted, used = self._wanted(node, own)
            pause_s = RETRY_S
            try:
                report, pause_s = await asyncio.to_thread(_pass, cache, wanted, used)
            except OSError as error:  # an error of the disk: a later pass may succeed
                self._note(node, f"the data cache failed and is retried: {error}")
            else:
                self._reports[node] = report
                await self._report(node, base.encode(report))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await due.wait()

    def _wanted(
        self, node: str, own: Iterable[pods.Pod]
    ) -> tuple[data.DataWanted | None, frozenset[str]]:
        """The copies that the node should have, None if unknown, and the content keys that its pods
        mount."""
        answer = self._answers.get(node)
        items = {item.key: item for item in answer.items} if answer is not None else {}
        used: set[str] = set()
        for pod in own:
            used |= data_volumes.keys_of(pod)
            for item in self._needed(pod):
                listed = items.get(item.key, item)
                items[item.key] = msgspec.structs.replace(listed, pinned=True)
        is_known = answer is not None or self._exchange is None
        ordered = tuple(items[key] for key in sorted(items))
        # Before the first answer, a list for the own pods alone would drop prefetched copies.
        wanted = data.DataWanted(node=node, items=ordered) if is_known else None
        return wanted, frozenset(used)

    def _needed(self, pod: pods.Pod) -> tuple[data.WantedCopy, ...]:
        try:
            return data_volumes.wanted(pod)
        except ValueError as error:
            if pod.metadata.uid not in self._unreadable:
                self._unreadable.add(pod.metadata.uid)
                telemetry.log.warning("pod waits", pod=pod.metadata.key, reason=str(error))
            return ()

    async def _report(self, node: str, report: bytes) -> None:
        if self._exchange is None:
            return
        try:
            answer = await self._exchange(node, report)
            data_wanted = decoding.decode(_DECODER, answer)
        except (errors.ExternalError, msgspec.DecodeError) as error:
            # After a start, the first report is sent before the monitor is ready for it.
            if node in self._rejected:
                self._note(node, f"report of data not accepted: {error}")
            self._rejected.add(node)
            return
        self._rejected.discard(node)
        self._note(node, "")
        if data_wanted != self._answers.get(node):
            self._answers[node] = data_wanted
            self._due[node].set()

    def _note(self, node: str, problem: str) -> None:
        """Log a problem once, and again after it was over."""
        if problem and self._troubles.get(node) != problem:
            telemetry.log.warning("data cache", node=node, problem=problem)
        self._troubles[node] = problem

    def _wake(self, node: str) -> None:
        """Start a pass of the node's cache. May be called in any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the system has ended
                self._loop.call_soon_threadsafe(self._due[node].set)


def _pass(
    cache: NodeCache, wanted: data.DataWanted | None, used: frozenset[str]
) -> tuple[data.DataObserved, float]:
    """One pass of a cache, in a thread; returns the report, and the seconds until the next pass.
    Raises OSError."""
    cache.use(used)
    if wanted is not None:
        cache.set_wanted(wanted)
    cache.step()
    return cache.report(), cache.next_step_s()


def settings_for(
    nodes: Sequence[object],
    free_bytes: int,
    origins: tuple[str, ...],
    capacity_bytes: int,
) -> CacheSettings:
    """The settings of the caches of this machine's process nodes. ``capacity_bytes``: of each node,
    0 for an equal share of half of the free disk."""
    share = free_bytes // 2 // max(len(nodes), 1)
    return CacheSettings(
        allowed_origins=origins, capacity_bytes=capacity_bytes or share, report_every_s=2.0
    )

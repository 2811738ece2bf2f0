"""``StromCluster``: a Dask cluster whose workers are jobs.

The scheduler runs in the program; each worker is a job of one pod, so that Dask chooses which
worker to close. The workers of the scheduler and the jobs on the server may differ:

- A worker that leaves the scheduler is not replaced by Dask: its job restarts the pod, which waits
  in the queue if there is no room.
- A worker that is missing in the scheduler and whose job has ended gets a new job with a new name.
- A job whose pod failed several times without becoming a worker is not replaced; the error is
  raised by ``wait_for_workers`` and by ``scale``.
"""

import asyncio
import contextlib
import importlib.util
import logging
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from dask.utils import parse_bytes
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import SpecCluster
from distributed.scheduler import Scheduler
from distributed.utils import get_ip

from stromboli.client import AsyncClient, errors
from stromboli.dask.worker_job import CLUSTER_LABEL, WorkerJob, WorkerOptions

CHECK_EVERY_S = 2.0
LOOK_EVERY_S = 0.1
_LOOPBACK = "127.0.0.1"
_LOCAL = frozenset({"localhost", _LOOPBACK, "::1"})

_log = logging.getLogger("stromboli.dask")


class StromCluster(SpecCluster):  # type: ignore[misc]  # Dask is not in this environment
    """A Dask cluster with ``n_workers`` workers at first; ``scale`` and ``adapt`` change them.

    ``name``: jobs are called ``<name>-<number>``; a new cluster of the same name deletes the
    remaining workers of the earlier one. ``host``: the address of this program at which pods reach
    the scheduler; the default is the address from which this machine connects to the server.
    ``client``: by default ``AsyncClient()``; it is closed with the cluster. ``scheduler_options``
    are for Dask's ``Scheduler``, further keywords for ``SpecCluster``. Raises ClientError when a
    worker's job is refused. While the cluster waits for its first worker, the logger
    ``stromboli.dask`` reports why.
    """

    worker_spec: dict[str, Any]
    workers: dict[str, WorkerJob]

    def __init__(
        self,
        n_workers: int = 0,
        *,
        options: WorkerOptions | None = None,
        name: str = "",
        host: str = "",
        client: AsyncClient | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self.options = options or WorkerOptions()
        self._client = AsyncClient() if client is None else client
        self._is_named = bool(name)
        name = name or f"dask-{uuid.uuid4().hex[:8]}"
        self._prefix = name
        self._checks: asyncio.Task[None] | None = None
        self._failure: errors.WorkersLostError | None = None
        self._had_worker = False
        self._waiting_reason = ""
        scheduler = {
            "host": host or _host(self._client.url),
            "port": 0,
            "dashboard_address": ":0",  # a free port: others on this machine may have clusters, too
            "dashboard": importlib.util.find_spec("bokeh") is not None,
            **(scheduler_options or {}),
        }
        worker = {"cluster": name, "client": self._client, "options": self.options}
        spec = {"cls": WorkerJob, "options": worker}
        super().__init__(
            workers={self._new_worker_name(number): spec for number in range(n_workers)},
            scheduler={"cls": Scheduler, "options": scheduler},
            worker=spec,
            name=name,
            **keywords,
        )

    # --- what SpecCluster calls

    def _new_worker_name(self, worker_number: int) -> str:
        return f"{self._prefix}-{worker_number}"

    def new_worker_spec(self) -> dict[str, Any]:
        """See SpecCluster. A name is used once. Raises WorkersLostError if the first jobs failed
        before they became workers."""
        if self._failure is not None and not self._had_worker:
            raise self._failure
        spec: dict[str, Any] = super().new_worker_spec()
        self._i += 1
        return spec

    def _threads_per_worker(self) -> int:
        return self.options.threads

    def _memory_per_worker(self) -> int:
        return int(parse_bytes(self.options.memory))

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster's method would delete the worker's job after some seconds, although the job
        # may restart its pod.
        Cluster._update_worker_status(self, op, msg)
        for name in self._joined():
            self._had_worker = True
            if name in self.workers:
                self.workers[name].has_joined = True

    async def _start(self) -> None:
        if self.status != Status.created:
            await super()._start()
            return
        try:
            await self._delete_earlier_workers()
            await super()._start()
        except BaseException:
            await self._client.__aexit__(None, None, None)
            raise
        self._checks = asyncio.create_task(self._check_regularly())

    async def _close(self) -> None:
        if self._checks is not None:
            self._checks.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._checks
        try:
            await super()._close()
        finally:
            await self._client.__aexit__(None, None, None)

    async def _wait_for_workers(
        self,
        n_workers: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - Dask's name
    ) -> None:
        """Raises WorkersLostError if the cluster will not have ``n_workers`` because their jobs
        failed, TimeoutError after ``timeout`` seconds."""
        wait = asyncio.ensure_future(super()._wait_for_workers(n_workers, timeout))
        try:
            while not wait.done():
                if self._failure is not None and len(self.worker_spec) < n_workers:
                    raise self._failure
                await asyncio.wait({wait}, timeout=LOOK_EVERY_S)
            await wait
        finally:
            wait.cancel()

    # --- jobs

    async def _delete_earlier_workers(self) -> None:
        """Delete the jobs of an earlier cluster of this name, and number new ones after them."""
        if not self._is_named:
            return
        async with contextlib.aclosing(self._client.jobs(self.options.namespace)) as jobs:
            left = [
                job.metadata.name
                async for job in jobs
                if (job.metadata.labels or {}).get(CLUSTER_LABEL) == self._prefix
            ]
        numbers = [int(name.removeprefix(f"{self._prefix}-")) for name in left]
        first = max(numbers, default=-1) + 1
        specs = list(self.worker_spec.values())
        self.worker_spec = {
            self._new_worker_name(number): spec for number, spec in enumerate(specs, first)
        }
        self._i = first + len(specs)
        for name in left:
            with contextlib.suppress(errors.NotFoundError):
                await self._client.delete(name, self.options.namespace)

    async def _check_regularly(self) -> None:
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            try:
                await self._check_workers()
            except errors.ClientError as error:  # the next check retries
                _log.warning("cluster %s: %s", self._prefix, error)

    async def _check_workers(self) -> None:
        """Read the job of each worker that the scheduler does not have: one request each. Raises
        ClientError."""
        joined = self._joined()
        missing = [each for each in self.workers.items() if each[0] not in joined]
        for name, worker in missing:
            if reason := await worker.end():
                await self._drop(name, worker, reason)
        if not joined and missing:
            await self._report_wait(missing[0][1])
        if set(self.worker_spec) - set(self.workers):
            await self._correct_state()

    def _joined(self) -> set[str]:
        return {str(each["name"]) for each in self.scheduler_info["workers"].values()}

    async def _drop(self, name: str, worker: WorkerJob, reason: str) -> None:
        self.workers.pop(name, None)
        await worker.close()
        if self.worker_spec.pop(name, None) is None:
            return  # closed by ``scale`` meanwhile
        if worker.has_joined:
            _log.warning("%s is replaced: %s", worker.what, reason)
            self.worker_spec.update(self.new_worker_spec())
            return
        _log.error("%s failed: %s", worker.what, reason)
        self._failure = errors.WorkersLostError(worker.what, reason)

    async def _report_wait(self, worker: WorkerJob) -> None:
        if worker.status != Status.running:
            return
        with contextlib.suppress(errors.NotFoundError):
            reason = await worker.waiting_reason()
            if reason and reason != self._waiting_reason:
                self._waiting_reason = reason
                _log.warning("cluster %s waits for a worker: %s", self._prefix, reason)


def _host(server: str) -> str:
    """The address of this machine from which connections to the server are made."""
    host = urlsplit(server).hostname or _LOOPBACK
    return _LOOPBACK if host in _LOCAL else str(get_ip(host))

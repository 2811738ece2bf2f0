"""One Dask worker as a job: its manifest, and its start and end for ``SpecCluster``."""

import logging
import os
import sys
import uuid
from collections.abc import Mapping
from datetime import timedelta

import msgspec
from dask.utils import parse_bytes
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface

from stromboli.client import AsyncClient, errors, job, phases
from stromboli.shared.api import batch

CLUSTER_LABEL = "stromboli.sh/dask-cluster"
"""The label of a worker's job; its value is the name of the cluster."""
ENDED_TTL_S = 600
"""Time after which an ended job is deleted if the cluster does not delete it."""
MAX_RETRY = 10_000
"""``maxRetry`` of the job: high, because Dask itself limits the failures of each task
(``distributed.scheduler.allowed-failures``)."""
RESTARTS_WITHOUT_WORKER = 3
"""Restarts of a pod that never became a worker, after which its job counts as failed."""
_WAITING = frozenset(phases.PHASES) - phases.FINAL
"""Phases of a job whose pod may still become a worker."""

_log = logging.getLogger("stromboli.dask")


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of each worker of a cluster.

    ``image``: has the program's versions of Python and Dask; empty on process nodes, which run this
    interpreter in this directory. ``threads``: of the worker, and the CPUs that it requests.
    ``memory``: the memory that it requests and its limit in Dask, such as ``"4 GiB"``.
    ``requests``: further requests; they override CPU and memory. ``time_limit``: the job is
    terminated then, and a new worker replaces it. ``arguments`` are added to the command ``dask
    worker``. ``orphaned_after_s``: seconds after which a worker without a scheduler ends.
    """

    image: str = ""
    threads: int = 1
    memory: str = "1 GiB"
    gpus: int = 0
    requests: Mapping[str, str] = {}
    queue: str = ""
    priority_class: str = ""
    time_limit: timedelta | None = None
    namespace: str = "default"
    env: Mapping[str, str] = {}
    arguments: tuple[str, ...] = ()
    orphaned_after_s: int = 60


def worker_job(name: str, cluster: str, scheduler: str, options: WorkerOptions) -> batch.Job:
    """A job of one pod, the Dask worker ``name`` of the scheduler at this address.

    A pod that fails or is evicted is replaced. Raises ValueError if ``memory`` cannot be parsed.
    """
    memory = str(parse_bytes(options.memory))
    base_job = job(
        name,
        image=options.image or "process-node",
        command=[
            "python" if options.image else sys.executable,
            *("-m", "distributed.cli.dask_worker", scheduler, "--name", name),
            *("--nthreads", str(options.threads), "--memory-limit", memory),
            *("--death-timeout", str(options.orphaned_after_s), "--no-dashboard"),
            *options.arguments,
        ],
        requests={"cpu": str(options.threads), "memory": memory, **options.requests},
        gpus=options.gpus,
        env=options.env,
        # So that modules beside the program can be imported.
        working_dir="" if options.image else os.getcwd(),
        time_limit=options.time_limit,
        queue=options.queue,
        priority_class=options.priority_class,
    )
    replaced = batch.LifecyclePolicy(events=("PodFailed", "PodEvicted"), action="RestartPod")
    return msgspec.structs.replace(
        base_job,
        metadata=msgspec.structs.replace(base_job.metadata, labels={CLUSTER_LABEL: cluster}),
        spec=msgspec.structs.replace(
            base_job.spec,
            policies=(replaced,),
            max_retry=MAX_RETRY,
            ttl_seconds_after_finished=ENDED_TTL_S,
        ),
    )


class WorkerJob(ProcessInterface):  # type: ignore[misc]  # Dask is not in this environment
    """A worker of a ``SpecCluster``. ``has_joined``: whether it has ever registered with the
    scheduler."""

    def __init__(
        self,
        scheduler: str,
        *,
        name: str,
        cluster: str,
        client: AsyncClient,
        options: WorkerOptions,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.what = f"worker {options.namespace}/{name}"
        self.has_joined = False
        self._name = name
        self._namespace = options.namespace
        self._client = client
        self._job = worker_job(name, cluster, scheduler, options)

    async def start(self) -> None:
        """Create the job; its pod may start later. Raises ClientError."""
        try:
            await self._client.submit(self._job, self._namespace, idempotency_key=uuid.uuid4().hex)
        except errors.ClientError:
            self.status = Status.failed
            raise
        await super().start()

    async def close(self) -> None:
        """Delete the job. A job that cannot be deleted ends with the scheduler."""
        try:
            await self._client.delete(self._name, self._namespace)
        except errors.NotFoundError:
            pass
        except errors.ClientError as error:
            _log.warning("%s: its job could not be deleted: %s", self.what, error)
        await super().close()

    async def end(self) -> str:
        """Why the job's pod will not become a worker any more; empty while it may. Raises
        ClientError."""
        try:
            current_job = await self._client.job(self._name, self._namespace)
        except errors.NotFoundError:
            return "its job was deleted"
        phase = phases.phase_of(current_job)
        if phase not in _WAITING:
            message = current_job.status.state.message
            return f"its job is {phase}" + (f": {message}" if message else "")
        if not self.has_joined and current_job.status.retry_count >= RESTARTS_WITHOUT_WORKER:
            restarts = current_job.status.retry_count
            return f"its pod failed {restarts} times and became no worker{await self._last_end()}"
        return ""

    async def _last_end(self) -> str:
        history = await self._client.tasks(self._name, self._namespace)
        ended = [each for each in history.tasks if each.is_over and each.exit_code is not None]
        if not ended:
            return ""
        return (
            f": exit code {ended[-1].exit_code}; "
            f"strom job logs {self._name} -n {self._namespace} --attempt {ended[-1].attempt}"
        )

    async def waiting_reason(self) -> str:
        """Why the job is pending, empty if it is not. Raises ClientError."""
        return (await self._client.explanation(self._name, self._namespace)).reason

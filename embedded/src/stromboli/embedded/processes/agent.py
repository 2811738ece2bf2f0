"""The agent of process nodes: acts as kubelet for its nodes, using only the cluster port.

One agent serves all process nodes of a system. It watches all pods, since every node knows names
and addresses of a job's pods, and runs those bound to its nodes.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.embedded.processes import exec_session, machine, worker
from stromboli.embedded.processes.core import addresses, image_files
from stromboli.embedded.processes.core import pod as pods
from stromboli.embedded.processes.data_caches import DataCaches
from stromboli.embedded.processes.disk import PodFolder
from stromboli.embedded.processes.log_archive import LogArchive
from stromboli.embedded.processes.output import Output
from stromboli.embedded.processes.pod_usage import UsageReporter
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster import pod_sessions
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime, telemetry

Document = dict[str, object]
FINISHED = ("Succeeded", "Failed")


class ProcessNodeAgent:
    """The agent. ``nodes``: manifests; ``state``: folder for the files of all pods;
    the output of deleted pods is kept in a folder ``logs`` beside it.

    ``view``: what containers see of the machine, see ``machine.view``. ``image_runtime``: the
    program that runs containers from image files; without it, such pods fail. ``caches``: the
    caches of data sets; without them, pods with data sets wait. ``visible``: isolates containers,
    see ``machine.isolating``. ``usage`` reports what pods use.
    """

    def __init__(
        self,
        cluster: cluster_port.Cluster,
        nodes: Sequence[Document],
        state: Path,
        clock: runtime.Clock,
        view: str,
        image_runtime: image_files.ImageRuntime | None = None,
        caches: DataCaches | None = None,
        visible: Sequence[str] | None = None,
        usage: UsageReporter | None = None,
    ) -> None:
        self._cluster = cluster
        self._caches = caches
        self._usage = usage
        self._documents = {_name(document): document for document in nodes}
        self._state = state
        self._archive = LogArchive(state.with_name("logs"))
        self._clock = clock
        self._health = runtime.Health("process-nodes")
        self._around = worker.NodeContext(
            cluster=cluster,
            folder=state,
            clock=clock,
            health=self._health,
            view=view,
            base=machine.environment(),
            machine=machine.resources(),
            lookup=machine.lookup(),
            hosts=self._hosts,
            image_runtime=image_runtime,
            caches=caches,
            visible=None if visible is None else tuple(visible),
        )
        self._workers: dict[str, worker.PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._named: dict[str, addresses.PodAddress] = {}
        self._clearing: dict[str, asyncio.Event] = {}
        """Uids of deleted pods whose files are being removed, and whose output is being kept."""
        self._stale: set[str] = set()
        self._has_stale = asyncio.Event()
        self.endpoint: Mapping[str, Any] = {}
        """The node's address and kubelet port for a real API server, as in the status of its
        Node."""

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return list(self._documents)

    async def run(self) -> None:
        """Serve until cancelled, then kill all processes of all pods."""
        for name, document in self._documents.items():
            await self._open(name, document)
        telemetry.log.info("process nodes are up", nodes=len(self._documents))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._rename())
                if self._caches is not None:
                    group.create_task(self._caches.run())
                if self._usage is not None:
                    group.create_task(self._usage.run())
                for kind in (kinds.CONFIG_MAPS, kinds.SECRETS):
                    group.create_task(self._refresh(kind))
                async for event in list_and_watch(self._cluster, kinds.PODS):
                    if event is None:
                        await self._remove_orphans()
                        continue
                    try:
                        pod, document = pods.read(event.object)
                    except (msgspec.DecodeError, msgspec.ValidationError) as error:
                        telemetry.log.warning("unreadable pod is not run", error=str(error))
                        continue
                    if event.type == "DELETED":
                        self._handle_deleted(pod)
                    else:
                        self._handle_pod(pod, document, group)
        finally:
            await self._close()

    @contextlib.asynccontextmanager
    async def logs(
        self, uid: str, query: cluster_port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Read the output of a container."""
        pod_worker = self._workers.get(uid)
        if pod_worker is None:
            raise errors.InvalidError("read a log", "the pod is not running on its node yet")
        output = pod_worker.output(query)
        chunks = _selected(output, query, follow=query.follow)
        async with contextlib.aclosing(chunks):
            yield chunks

    @contextlib.asynccontextmanager
    async def deleted_logs(
        self, namespace: str, name: str, query: cluster_port.LogQuery
    ) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Read the output of a container of a deleted pod; an empty ``query.container`` means its
        only container."""
        what = f"read the log of Pod {namespace}/{name}"
        known = self._workers.get(query.uid)
        if known is not None and known.pod.metadata.key == f"{namespace}/{name}":
            container = query.container or known.pod.spec.containers[0].name
            chosen = msgspec.structs.replace(query, container=container)
            async with self.logs(query.uid, chosen) as chunks:
                yield chunks  # its deletion is not observed yet
            return
        if clearing := self._clearing.get(query.uid):
            await clearing.wait()
        try:
            folder = await asyncio.to_thread(self._archive.find, namespace, name, query.uid)
        except ValueError as error:
            raise errors.NotFoundError(what, str(error)) from None
        kept = [] if folder is None else await asyncio.to_thread(folder.containers)
        if not query.container and len(kept) > 1:
            raise errors.InvalidError(what, f"specify a container; the pod has {', '.join(kept)}")
        container = query.container or "".join(kept)
        is_kept = folder is not None and container in kept
        runs = await asyncio.to_thread(folder.runs, container) if folder and is_kept else []
        if folder is None or len(runs) <= query.previous:
            raise errors.NotFoundError(what, "no output of this container is kept")
        run = runs[-2] if query.previous else runs[-1]
        output = Output(folder.log(container, run), is_over=True)
        chunks = _selected(output, query, follow=False)
        async with contextlib.aclosing(chunks):
            yield chunks

    @contextlib.asynccontextmanager
    async def exec(
        self, uid: str, request: pod_sessions.ExecRequest
    ) -> AsyncIterator[pod_sessions.ExecSession]:
        """Run a command in a container, beside its main process; ``request.container`` is set."""
        pod_worker = self._worker(uid)
        what = f"run a command in Pod {pod_worker.pod.metadata.key}"
        process = pod_worker.process(request.container)
        async with exec_session.opened(process, request, what) as session:
            yield session

    def address(self, uid: str) -> str:
        """The IP address of a running pod. Raises InvalidError."""
        return self._worker(uid).address

    def _worker(self, uid: str) -> worker.PodWorker:
        if (pod_worker := self._workers.get(uid)) is None:
            raise errors.InvalidError("open a session", "the pod is not running on its node")
        return pod_worker

    def uid_of(self, namespace: str, name: str) -> str:
        """Return the uid of one of our pods; empty if there is none of this name."""
        for uid, each in self._workers.items():
            if (each.pod.metadata.namespace, each.pod.metadata.name) == (namespace, name):
                return uid
        return ""

    # --- pods ------------------------------------------------------------------------------

    def _handle_pod(self, pod: pods.Pod, document: pods.Document, group: asyncio.TaskGroup) -> None:
        uid = pod.metadata.uid
        known = self._workers.get(uid)
        if known is None and pod.spec.node_name in self._documents:
            used_addresses = {each.address for each in self._workers.values()}
            used_addresses |= {each.address for each in self._named.values()}
            address = pod.status.pod_ip or addresses.address(uid, used_addresses)
            known = self._workers[uid] = worker.PodWorker(pod, document, address, self._around)
            if pod.status.phase not in FINISHED or pod.metadata.deletion_timestamp:
                self._tasks[uid] = group.create_task(self._serve(known))
        address = known.address if known is not None else pod.status.pod_ip
        is_terminating = pod.status.phase in FINISHED or pod.metadata.deletion_timestamp is not None
        if address and not is_terminating:
            self._name(uid, worker.named(pod, address))
        else:
            self._forget(uid)
        if known is not None:
            known.see(pod)
            self._see(known, is_over=pod.status.phase in FINISHED)

    def _see(self, known: worker.PodWorker, *, is_over: bool) -> None:
        """Notify the data caches and the usage reports of a running or ended pod."""
        pod = known.pod
        if self._caches is not None:
            self._caches.see(pod, is_over=is_over)
        if self._usage is not None:
            node, uid = pod.spec.node_name, pod.metadata.uid
            self._usage.see(node, uid, known.usage, is_over=is_over)

    async def _serve(self, served: worker.PodWorker) -> None:
        try:
            await served.run()
        finally:
            self._tasks.pop(served.pod.metadata.uid, None)

    def _handle_deleted(self, pod: pods.Pod) -> None:
        """Stop and forget the pod: its object is deleted, so no status can be written."""
        uid = pod.metadata.uid
        self._forget(uid)
        gone = self._workers.pop(uid, None)
        task = self._tasks.get(uid)
        if gone is None:
            return
        self._see(gone, is_over=True)
        self._clearing[uid] = asyncio.Event()
        if task is None:
            self._clear(gone)
            return
        task.add_done_callback(lambda _: self._clear(gone))
        task.cancel()

    def _clear(self, gone: worker.PodWorker) -> None:
        work = asyncio.get_running_loop().run_in_executor(None, gone.clear, self._archive)
        work.add_done_callback(lambda _: self._clearing.pop(gone.pod.metadata.uid).set())

    async def _remove_orphans(self) -> None:
        """Delete the files of pods that were deleted while the agent was down."""
        if not self._state.is_dir():
            return
        for folder in self._state.iterdir():
            if folder.name not in self._workers:
                await asyncio.to_thread(PodFolder(folder).remove)

    # --- names -----------------------------------------------------------------------------

    def _name(self, uid: str, named: addresses.PodAddress) -> None:
        if self._named.get(uid) != named:
            self._named[uid] = named
            self._stale.add(named.namespace)
            self._has_stale.set()

    def _forget(self, uid: str) -> None:
        """Remove a terminating pod from hosts files: a new one of the same name may be created."""
        named = self._named.pop(uid, None)
        if named is not None:
            self._stale.add(named.namespace)
            self._has_stale.set()

    def _hosts(self, pod: pods.Pod, address: str) -> str:
        own = worker.named(pod, address)
        return addresses.hosts_file(
            own, self._named.values(), pod.spec.host_aliases, machine.hosts()
        )

    async def _rename(self) -> None:
        """Update the hosts files of namespaces with changed pods, once for all pending changes."""
        while True:
            await self._has_stale.wait()
            await asyncio.sleep(0)
            stale, self._stale = self._stale, set()
            self._has_stale.clear()
            for each in self._workers.values():
                if each.pod.metadata.namespace in stale:
                    each.rename()

    async def _refresh(self, kind: kinds.Kind[Any]) -> None:
        """Update volumes after changes of ConfigMaps or Secrets: the host lists of a job change
        when it is scaled."""
        async for event in list_and_watch(self._cluster, kind):
            if event is not None and event.type != "DELETED":
                meta = kinds.metadata_of(event.object)
                for each in list(self._workers.values()):
                    if each.pod.metadata.namespace == meta.namespace:
                        await each.refresh(kind.kind, meta.name)

    # --- nodes -----------------------------------------------------------------------------

    async def _open(self, name: str, document: Document) -> None:
        create = functools.partial(
            self._cluster.create, kinds.NODES, "", msgspec.json.encode(document)
        )
        with contextlib.suppress(errors.AlreadyExistsError):
            await runtime.retry_until_available(create, "cluster", self._health)
        status = document["status"]
        more = {**status, **self.endpoint} if isinstance(status, dict) else {}
        await self._state_of(name, "True", "ProcessNode", more)

    async def _close(self) -> None:
        """Mark the nodes as not ready at the end, if the cluster is reachable."""
        with contextlib.suppress(errors.ExternalError, TimeoutError):
            async with asyncio.timeout(2.0):
                for name in self._documents:
                    await self._state_of(name, "False", "Stopped", {})

    async def _state_of(self, name: str, ready: str, reason: str, more: Mapping[str, Any]) -> None:
        patch = functools.partial(
            _set_ready_condition, self._cluster, name, ready, reason, more, self._clock()
        )
        await runtime.retry_until_available(patch, "cluster", self._health)


async def mark_stale_nodes_not_ready(
    cluster: cluster_port.Cluster, served: Collection[str], now: datetime
) -> None:
    """Mark process nodes of earlier runs as not ready, so that no pod is placed on them: an agent
    that was killed could not do that itself.
    """
    for raw in (await cluster.list(kinds.NODES, labels={keys.RUNNER: machine.RUNNER})).items:
        name = kinds.metadata_of(raw).name
        if name not in served:
            await _set_ready_condition(cluster, name, "False", "Stopped", {}, now)


async def _set_ready_condition(
    cluster: cluster_port.Cluster,
    name: str,
    ready: str,
    reason: str,
    more: Mapping[str, Any],
    now: datetime,
) -> None:
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": reason,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    patch = msgspec.json.encode({"status": {**more, "conditions": [condition]}})
    await cluster.patch(kinds.NODES, "", name, patch, patch_type="merge", subresource="status")


def _name(document: Document) -> str:
    metadata = document["metadata"]
    return str(metadata["name"]) if isinstance(metadata, dict) else ""


def _selected(
    output: Output, query: cluster_port.LogQuery, *, follow: bool
) -> AsyncGenerator[bytes, None]:
    """Return the part of an output that a query selects."""
    return output.chunks(
        follow=follow,
        tail_lines=query.tail_lines,
        timestamps=query.timestamps,
        since=query.since,
    )

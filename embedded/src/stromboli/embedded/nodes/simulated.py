"""The runner of simulated nodes: acts as kubelet for every node labelled as simulated.

A pod's state is derived from its object: start times are in the status, so a restarted runner
continues. One asyncio task per pod waits for a time or for the pod's peers.
"""

import asyncio
import contextlib
import functools
from collections import defaultdict
from datetime import datetime

import msgspec

from stromboli.embedded.nodes import rules as rule_files
from stromboli.embedded.nodes import statuses
from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.shared import errors, keys
from stromboli.shared.api import core, kinds
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.formats import units
from stromboli.shared.runtime import runtime, telemetry

RUNNER = "simulated"


EPHEMERAL_STORAGE = "100Gi"
"""Ephemeral storage of each simulated node, so that pods that request some can be placed."""


def node_documents(
    count: int, *, cpu: str, memory: str, gpus: int = 0, pods: int = 110, prefix: str = "node"
) -> list[dict[str, object]]:
    """Manifests of ``count`` equal simulated nodes. Raises ValueError for a bad quantity."""
    resources = {
        "cpu": cpu,
        "memory": memory,
        "ephemeral-storage": EPHEMERAL_STORAGE,
        "pods": str(pods),
    }
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
    units.amounts(resources)
    width = max(2, len(str(count - 1)))
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{prefix}-{index:0{width}d}",
                "labels": {
                    keys.RUNNER: RUNNER,
                    "kubernetes.io/hostname": f"{prefix}-{index:0{width}d}",
                },
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated"}],
            },
        }
        for index in range(count)
    ]


async def create_nodes(cluster: cluster_port.Cluster, documents: list[dict[str, object]]) -> None:
    """Create missing nodes with their status."""
    for document in documents:
        meta = document["metadata"]
        name = meta["name"] if isinstance(meta, dict) else ""
        try:
            await cluster.create(kinds.NODES, "", msgspec.json.encode(document))
        except errors.AlreadyExistsError:
            continue
        await cluster.patch(
            kinds.NODES,
            "",
            name,
            msgspec.json.encode({"status": document["status"]}),
            patch_type="merge",
            subresource="status",
        )


class _Peers:
    """The started pods of a job, and a condition for pods that wait for more of them."""

    def __init__(self) -> None:
        self.started: dict[str, datetime] = {}
        self._changed: asyncio.Event | None = None
        """Exists while a pod waits: most jobs that are kept have ended."""

    def start(self, uid: str, at: datetime) -> None:
        self.started[uid] = at
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def began(self, count: int) -> datetime:
        """Wait until ``count`` pods have started; return the time at which the last of them did."""
        while len(self.started) < count:
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
        return sorted(self.started.values())[count - 1]


class Runner:
    """Runs the pods of all nodes labelled ``stromboli.sh/runner=simulated``."""

    def __init__(
        self, cluster: cluster_port.Cluster, rules: rule_files.Rules, clock: runtime.Clock
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._clock = clock
        self._health = runtime.Health("nodes")
        self._mine: dict[str, bool] = {}
        self._nodes_known = asyncio.Event()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._peers: dict[str, _Peers] = defaultdict(_Peers)

    async def run(self) -> None:
        """Act as kubelet until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_nodes())
            await self._nodes_known.wait()
            async for event in list_and_watch(self._cluster, kinds.PODS):
                if event is None:
                    continue
                try:
                    pod = kinds.PODS.decode(event.object)
                except msgspec.DecodeError as error:
                    telemetry.log.warning("unreadable pod is not run", error=str(error))
                    continue
                if event.type == "DELETED":
                    self._end(pod)
                elif pod.spec.node_name and await self._is_mine(pod.spec.node_name):
                    self._handle_pod(pod, group)

    async def _follow_nodes(self) -> None:
        async for event in list_and_watch(self._cluster, kinds.NODES):
            if event is None:
                self._nodes_known.set()
                continue
            node = kinds.NODES.decode(event.object)
            self._mine[node.metadata.name] = (
                event.type != "DELETED" and node.metadata.label(keys.RUNNER) == RUNNER
            )

    async def _is_mine(self, node: str) -> bool:
        """Return whether the node is simulated; reads the node if its event has not arrived yet."""
        if node not in self._mine:
            try:
                node_object = kinds.NODES.decode(await self._cluster.get(kinds.NODES, "", node))
            except errors.ExternalError:
                return False
            self._mine[node] = node_object.metadata.label(keys.RUNNER) == RUNNER
        return self._mine[node]

    def _end(self, pod: core.Pod) -> None:
        life = self._lives.pop(pod.metadata.uid, None)
        if life is not None:
            life.cancel()
        owner = _owner(pod)
        self._peers[owner].started.pop(pod.metadata.uid, None)
        if not self._peers[owner].started:
            del self._peers[owner]

    def _handle_pod(self, pod: core.Pod, group: asyncio.TaskGroup) -> None:
        uid = pod.metadata.uid
        life = self._lives.get(uid)
        if pod.metadata.deletion_timestamp is not None:
            self._end(pod)
            self._start(uid, group.create_task(self._remove(pod)))
        elif pod.status.phase in ("Succeeded", "Failed"):
            self._peers[_owner(pod)].start(uid, pod.status.start_time or self._clock())
        elif life is None or life.done():  # its callback may not have run yet
            self._start(uid, group.create_task(self._live(pod)))

    def _start(self, uid: str, life: asyncio.Task[None]) -> None:
        """Keep the task until it ends."""
        self._lives[uid] = life
        life.add_done_callback(lambda _: self._forget(uid, life))

    def _forget(self, uid: str, life: asyncio.Task[None]) -> None:
        if self._lives.get(uid) is life:
            del self._lives[uid]

    async def _live(self, pod: core.Pod) -> None:
        wanted = rule_files.outcome(pod, self._rules)
        peers = self._peers[_owner(pod)]
        restarts = max(
            (status.restart_count for status in pod.status.container_statuses), default=0
        )
        started = pod.status.start_time if pod.status.phase == "Running" else None
        since = pod.status.start_time or self._clock()
        while True:
            if started is None:
                started = self._clock()
                if not await self._write(pod, statuses.running(pod, started, restarts)):
                    return
            peers.start(pod.metadata.uid, started)
            try:
                async with asyncio.timeout(self._left_s(pod, since)):
                    began = max(await peers.began(wanted.starts_with), started)
                    elapsed = (self._clock() - began).total_seconds()
                    await asyncio.sleep(max(wanted.run_seconds - elapsed, 0.0))
            except TimeoutError:
                await self._write(pod, statuses.overdue(pod, started, self._clock(), restarts))
                return
            if statuses.is_restarted(pod, wanted.exit_code):
                restarts, started = restarts + 1, None
                continue
            ended = statuses.ended(pod, started, self._clock(), wanted.exit_code, restarts)
            await self._write(pod, ended)
            return

    def _left_s(self, pod: core.Pod, since: datetime) -> float | None:
        """Return the remaining seconds until activeDeadlineSeconds; None without a deadline."""
        limit_s = pod.spec.active_deadline_seconds
        return None if limit_s is None else limit_s - (self._clock() - since).total_seconds()

    async def _write(self, pod: core.Pod, status: statuses.Status) -> bool:
        """Write a status; return False if the pod was replaced, deleted or is in a later phase."""
        patch = msgspec.json.encode({"metadata": {"uid": pod.metadata.uid}, "status": status})
        write = functools.partial(
            self._cluster.patch,
            kinds.PODS,
            pod.metadata.namespace,
            pod.metadata.name,
            patch,
            patch_type="merge",
            subresource="status",
        )
        try:
            await runtime.retry_until_available(write, "cluster", self._health)
        except (errors.NotFoundError, errors.ConflictError):
            return False
        except errors.InvalidError as error:  # the event was outdated: the pod has ended meanwhile
            telemetry.log.warning("pod status rejected", pod=pod.metadata.key, reason=error.reason)
            return False
        return True

    async def _remove(self, pod: core.Pod) -> None:
        """Delete the pod object once its containers have ended, as a kubelet does."""
        remove = functools.partial(
            self._cluster.delete,
            kinds.PODS,
            pod.metadata.namespace,
            pod.metadata.name,
            uid=pod.metadata.uid,
            grace_seconds=0,
        )
        with contextlib.suppress(errors.NotFoundError, errors.ConflictError):
            await runtime.retry_until_available(remove, "cluster", self._health)


def _owner(pod: core.Pod) -> str:
    owner = pod.metadata.controller
    return owner.uid if owner else pod.metadata.uid

"""The services in this process over a real API server, beside third-party controllers.

Operators see nothing of the log, so it is the embedded one: the system costs a few seconds of CPU.
Admission's webhooks are served and called as in a cluster.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import trustme

from stromboli.admission import service as admission_service
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.admission.webhooks import webhooks
from stromboli.controller import service as controller
from stromboli.controller.settings import ControllerSettings
from stromboli.embedded.bus import EmbeddedBus
from stromboli.monitor import service as monitor
from stromboli.monitor.settings import MonitorSettings
from stromboli.scheduler import service as scheduler
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import keys
from stromboli.shared.api import kinds
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.shared.jobspec import crds
from stromboli.shared.runtime import http, runtime
from stromboli.testkit.parts import kubernetes, kwok
from stromboli.testkit.parts.api import Api, ApiError
from stromboli.testkit.parts.tools import Tools

Document = dict[str, Any]
NODES, CPUS = 2, 4
WITHIN_S = 120.0
READY_WITHIN_S = 240.0
LOOPBACK = "127.0.0.1"
SPACE = "default"
POD_GROUPS = kinds.POD_GROUPS.path(SPACE)
PODS = kinds.PODS.path(SPACE)
JOBS = kinds.JOBS.path(SPACE)


class OperatorSystem:
    """The running system, as the users of operators have it: by Kubernetes' API alone."""

    def __init__(self, server: kubernetes.ApiServer, api: Api) -> None:
        self.server = server
        self.api = api

    async def get(self, path: str) -> Document:
        """Read an object; empty if it does not exist."""
        try:
            return await self.api.get(path)
        except ApiError as error:
            if error.status == 404:
                return {}
            raise

    async def until(self, path: str, holds: Callable[[Document], object]) -> Document:
        """Read an object, which may be absent, until it is as wanted."""
        found: Document = await until(lambda: self.get(path), holds)
        return found

    async def delete(self, path: str) -> None:
        """Delete an object with what it owns."""
        await self.api.delete(path, propagationPolicy="Background")

    async def pods(self, group: str) -> list[Document]:
        """The pods of a PodGroup that are not being deleted."""
        return [
            pod
            for pod in (await self.get(PODS))["items"]
            if pod["metadata"].get("annotations", {}).get(keys.GROUP_NAME) == group
            and "deletionTimestamp" not in pod["metadata"]
        ]

    async def pods_until(
        self, group: str, holds: Callable[[list[Document]], object]
    ) -> list[Document]:
        """The pods of a PodGroup when they are as wanted."""
        found: list[Document] = await until(lambda: self.pods(group), holds)
        return found

    async def group_until(self, name: str, holds: Callable[[Document], object]) -> Document:
        """A PodGroup when it is as wanted; empty if it does not exist."""
        return await self.until(f"{POD_GROUPS}/{name}", holds)

    @contextlib.asynccontextmanager
    async def occupied(self, name: str, *, pods: int, cpu: str) -> AsyncIterator[None]:
        """A job of running pods while inside; it is gone at the end."""
        container = {
            "name": "main",
            "image": "busybox",
            "resources": {"requests": {"cpu": cpu}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        task = {"name": "work", "replicas": pods, "template": template}
        job = {"metadata": {"name": name}, "spec": {"minAvailable": pods, "tasks": [task]}}
        head = {"apiVersion": kinds.JOBS.api_version, "kind": kinds.JOBS.kind}
        await self.api.create(JOBS, {**head, **job})
        await self.until(f"{JOBS}/{name}", lambda it: it.get("status", {}).get("running") == pods)
        yield
        await self.delete(f"{JOBS}/{name}")
        await self.until(f"{JOBS}/{name}", lambda it: not it)


async def until(read: Callable[[], Coroutine[Any, Any, Any]], holds: Callable[[Any], Any]) -> Any:
    """Poll until the value is as wanted; fails with the last value."""
    end = asyncio.get_running_loop().time() + WITHIN_S
    while not holds(value := await read()):
        assert asyncio.get_running_loop().time() < end, f"still {value!r} after {WITHIN_S:.0f} s"
        await asyncio.sleep(0.1)
    return value


def unscheduled(pods: list[Document]) -> list[str]:
    """What the pods' own conditions say about why they have no node."""
    return [
        condition.get("message", "")
        for pod in pods
        for condition in pod["status"].get("conditions", [])
        if condition["type"] == "PodScheduled"
        and condition["status"] == "False"
        and condition.get("reason") == "Unschedulable"
    ]


def bound(pods: list[Document]) -> list[str]:
    """The nodes of those pods that have one."""
    return [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]


def condition(document: Document, kind: str) -> bool:
    """Whether a condition of an operator's object is true."""
    return any(
        it["type"] == kind and it["status"] == "True"
        for it in document.get("status", {}).get("conditions") or []
    )


@contextlib.asynccontextmanager
async def running(tools: Tools, state: Path) -> AsyncIterator[OperatorSystem]:
    """A system with two nodes of four CPUs."""
    etcd = kubernetes.Etcd(tools, state / "etcd")
    server = kubernetes.ApiServer(tools, state / "kube-apiserver", etcd)
    manager = kubernetes.ControllerManager(tools, state / "kube-controller-manager", server)
    nodes = kwok.Kwok(tools, state / "kwok", server)
    async with contextlib.AsyncExitStack() as stack:
        for part in (etcd, server):
            part.ready_timeout_s = READY_WITHIN_S  # type: ignore[misc]  # a busy machine
            await part.start()
            stack.push_async_callback(part.stop)
        api = await stack.enter_async_context(server.client())
        for definition in crds.documents():
            await api.establish(definition)
        for further in (manager, nodes):
            await further.start()
            stack.push_async_callback(further.stop)
        await kwok.create_nodes(api, NODES, cpu=str(CPUS), memory="16Gi")
        await stack.enter_async_context(_services(state, server, api))
        yield OperatorSystem(server, api)


@contextlib.asynccontextmanager
async def _services(state: Path, server: kubernetes.ApiServer, api: Api) -> AsyncIterator[None]:
    """The services and their webhooks; ready inside."""
    names = ("admission", "monitor", "scheduler", "controller")
    healths = {name: runtime.Health(name) for name in names}
    settings, clock = AdmissionSettings(), runtime.utc_now
    kubeconfig = KubernetesSettings(kubeconfig=str(server.kubeconfig()))
    async with (
        EmbeddedBus(state / "log") as bus,
        KubernetesCluster(kubeconfig) as cluster,
        asyncio.TaskGroup() as group,
    ):
        admission = AdmissionService(settings, cluster, clock)
        work = (
            admission_service.serve(
                admission, settings, bus, healths["admission"], clock, "operators"
            ),
            monitor.serve(MonitorSettings(), bus, cluster, healths["monitor"], clock),
            scheduler.serve(SchedulerSettings(), bus, healths["scheduler"], clock),
            controller.serve(ControllerSettings(), bus, cluster, healths["controller"], clock),
        )
        tasks = [group.create_task(each) for each in work]
        async with admission.watch_caches, asyncio.timeout(READY_WITHIN_S) as limit:
            for health in healths.values():
                await health.ready()
            authority = trustme.CA()
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert(LOOPBACK).configure_cert(tls)
            async with http.serving(
                webhooks.app(admission), http.listen(LOOPBACK, 0), tls=tls
            ) as port:
                for document in webhooks.configurations(
                    f"https://{LOOPBACK}:{port}", authority.cert_pem.bytes()
                ):
                    plural = document["kind"].lower() + "s"
                    await api.create(f"/apis/admissionregistration.k8s.io/v1/{plural}", document)
                limit.reschedule(None)
                yield
        for task in tasks:
            task.cancel()

"""The way round on a real API server, wide enough that every right of the charts is needed once."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiokafka
import pytest

from stromboli.shared import keys, topics
from stromboli.shared.api import kinds
from stromboli.testkit.parts.api import Api, ApiError
from tests.charts.support.helm import Object

NAMESPACE = "users"
SCHEDULER = "volcano"
VOLUME = {
    "mountPath": "/data",
    "volumeClaim": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
    },
}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WAIT_S = 120


def path(kind: kinds.Kind[Any], name: str = "", namespace: str = NAMESPACE) -> str:
    """Of a collection, or of one object."""
    base = f"/apis/{kind.group}" if kind.group else "/api"
    inside = f"/namespaces/{namespace}" if kind.namespaced else ""
    return f"{base}/{kind.version}{inside}/{kind.plural}" + (f"/{name}" if name else "")


def manifest(kind: kinds.Kind[Any], name: str, **content: Any) -> Object:
    """An object, with further metadata in ``metadata``."""
    metadata = {"name": name, **content.pop("metadata", {})}
    if kind.namespaced:
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **content}


def pod_spec(**more: Any) -> Object:
    """One container that is content with little."""
    requests = {"cpu": "100m", "memory": "16Mi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    return {"restartPolicy": "Never", "containers": [container], **more}


def job_spec(*, runs_s: float = 0.2, exit_code: int = 0, **more: Any) -> Object:
    """Two pods that must run together, for so long."""
    marks = {keys.RUN_SECONDS: str(runs_s), keys.EXIT_CODE: str(exit_code)}
    template = {"metadata": {"annotations": marks}, "spec": pod_spec()}
    task = {"name": "worker", "replicas": 2, "template": template}
    done = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    return {"minAvailable": 2, "policies": done, "tasks": [task], **more}


class RightsScenarios:
    """A user and an operator in one, at the API server."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def make(self, kind: kinds.Kind[Any], name: str, **content: Any) -> Object:
        """Create an object."""
        return await self._api.create(path(kind), manifest(kind, name, **content))

    async def until(self, what: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Return once it does."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not await holds():  # noqa: ASYNC110 - only the API server knows
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{what} did not happen within {WAIT_S} s") from None

    async def phase(self, name: str, *wanted: str) -> None:
        """Wait for a job's phase."""

        async def is_there() -> bool:
            job = await self._api.get(path(kinds.JOBS, name))
            return job.get("status", {}).get("state", {}).get("phase") in wanted

        await self.until(f"job {name} {' or '.join(wanted)}", is_there)

    async def gone(self, kind: kinds.Kind[Any], name: str) -> None:
        """Wait until no object is left."""

        async def is_gone() -> bool:
            return not await self._api.exists(path(kind, name))

        await self.until(f"{kind.kind} {name} gone", is_gone)

    async def there(self, kind: kinds.Kind[Any], name: str) -> None:
        """Wait until an object exists."""
        await self.until(f"{kind.kind} {name} there", lambda: self._api.exists(path(kind, name)))

    # What users do

    async def jobs(self) -> None:
        """A gang with all objects of its plugins and volumes, which is deleted after its end; a job
        that fails and restarts; a job that is suspended.
        """
        beside: Object = {"plugins": {"env": [], "svc": [], "ssh": []}}
        gang = job_spec(ttlSecondsAfterFinished=0) | beside
        await self.make(kinds.JOBS, "gang", spec=gang)
        again = [{"event": "PodFailed", "action": "RestartJob"}]
        failing = job_spec(exit_code=3, maxRetry=2) | beside | {"policies": again}
        await self.make(kinds.JOBS, "retried", spec=failing)
        await self.make(kinds.JOBS, "keeps", spec=job_spec(volumes=[VOLUME]))

        async def is_claimed() -> bool:
            found = await self._api.get(path(kinds.PERSISTENT_VOLUME_CLAIMS))
            return any(it["metadata"]["name"].startswith("keeps-pvc-") for it in found["items"])

        await self.until("a claim made for job keeps", is_claimed)
        await self.make(kinds.JOBS, "long", spec=job_spec(runs_s=600))
        await self.phase("long", "Running")
        await self.order("long", "AbortJob")
        await self.phase("long", "Aborted")
        await self.phase("retried", "Failed")
        await self.gone(kinds.JOBS, "gang")

    async def changes(self) -> None:
        """A job that is scaled up together with its host lists; one with a pod name that is already
        in use; one that fits on no node.
        """
        lists: Object = {"svc": [], "ssh": []}
        await self.make(kinds.JOBS, "grows", spec=job_spec(runs_s=600, plugins=lists))
        await self.phase("grows", "Running")
        more = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 3}]
        await self._api.patch(path(kinds.JOBS, "grows"), more, "json")
        await self.bound("grows-worker-2")
        await self.make(kinds.PODS, "taken-worker-0", spec=pod_spec())
        await self.make(kinds.JOBS, "taken", spec=job_spec())
        await self.said("taken")
        stuck = job_spec()
        stuck["tasks"][0]["template"]["spec"]["nodeSelector"] = {"there": "is-none"}
        await self.make(kinds.JOBS, "stuck", spec=stuck)

        async def is_reported() -> bool:
            if not await self._api.exists(f"{PODS}/stuck-worker-0"):
                return False
            pod = await self._api.get(f"{PODS}/stuck-worker-0")
            return bool(pod["status"].get("conditions"))

        await self.until("pod stuck-worker-0 told why it waits", is_reported)

    async def said(self, about: str) -> None:
        """Wait for a warning about an object."""

        async def is_said() -> bool:
            found = await self._api.get(path(kinds.EVENTS))
            return any(
                each["involvedObject"]["name"] == about and each["type"] == "Warning"
                for each in found["items"]
            )

        await self.until(f"an Event about {about}", is_said)

    async def stale_cache(self, monitor_stops: Callable[[], Awaitable[None]]) -> None:
        """Cases in which the controller's cache is old: a cron is due whose job exists already, and
        a job ends while another client has changed its status and its PodGroup and queue are
        deleted.
        """
        await self.make(kinds.QUEUES, "blind", spec={"weight": 1})
        await self.queue_is("blind", "Open")
        await self.make(
            kinds.JOBS, "blind", spec=job_spec(runs_s=600, queue="blind", activeDeadlineSeconds=8)
        )
        await self.phase("blind", "Running")
        groups = (await self._api.get(path(kinds.POD_GROUPS)))["items"]
        (group,) = (
            each["metadata"]["name"]
            for each in groups
            if each["metadata"]["name"].startswith("blind-")
        )
        await monitor_stops()
        await self._api.delete(path(kinds.POD_GROUPS, group))
        await self._api.delete(path(kinds.QUEUES, "blind"))
        other = {"status": {"state": {"phase": "Restarting"}}}
        await self._api.patch(f"{path(kinds.JOBS, 'blind')}/status", other)

    async def order(self, job: str, action: str, kind: kinds.Kind[Any] = kinds.JOBS) -> None:
        """By a Command object, as `vcctl` does."""
        found = await self._api.get(path(kind, job))
        target = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": job,
            "uid": found["metadata"]["uid"],
        }
        name = f"{job}-{action.lower()}"
        await self.make(kinds.COMMANDS, name, target=target, action=action)
        await self.gone(kinds.COMMANDS, name)

    async def tools(self) -> None:
        """A terminal beside a running job, which is removed later."""
        tools_annotation = '[{"tool": "terminal"}]'
        spec = job_spec(runs_s=600)
        await self.make(
            kinds.JOBS, "seen", spec=spec, metadata={"annotations": {keys.TOOLS: tools_annotation}}
        )
        await self.there(kinds.SERVICES, "seen-tool-terminal")
        away = {"metadata": {"annotations": {keys.TOOLS: None}}}
        await self._api.patch(path(kinds.JOBS, "seen"), away)
        await self.gone(kinds.SECRETS, "seen-tool-terminal")
        await self.gone(kinds.SERVICES, "seen-tool-terminal")

    async def name_conflicts(self) -> None:
        """A cron reports that the name of its job is already in use."""
        minute = int(time.time()) // 60
        for later in range(4):
            await self.make(kinds.JOBS, f"held-{minute + later}", spec=job_spec())
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job_spec()}}
        await self.make(kinds.CRON_JOBS, "held", spec=spec)

        async def is_held() -> bool:
            found = await self._api.get(path(kinds.CRON_JOBS, "held"))
            return keys.HELD in found["metadata"].get("annotations", {})

        await self.until("cron held says why", is_held)
        await self._api.delete(path(kinds.CRON_JOBS, "held"))

    async def flows_and_crons(self) -> None:
        """A flow that leaves nothing behind, and a cron that is due."""
        await self.make(kinds.JOB_TEMPLATES, "step", spec=job_spec())
        flow = {"jobRetainPolicy": "delete", "flows": [{"name": "step"}]}
        await self.make(kinds.JOB_FLOWS, "steps", spec=flow)
        cron = {"schedule": "@every 2s", "jobTemplate": {"spec": job_spec()}}
        await self.make(kinds.CRON_JOBS, "often", spec=cron)
        await self.name_conflicts()

        async def is_done() -> bool:
            found = await self._api.get(path(kinds.JOB_FLOWS, "steps"))
            return bool(found.get("status", {}).get("state", {}).get("phase") == "Succeed")

        await self.until("flow steps Succeed", is_done)
        await self.gone(kinds.JOBS, "steps-step")

        async def has_begun() -> bool:
            found = await self._api.get(path(kinds.CRON_JOBS, "often"))
            return bool(found.get("status", {}).get("lastScheduleTime"))

        await self.until("cron often begun", has_begun)
        await self._api.delete(path(kinds.CRON_JOBS, "often"))

    async def unmanaged_pods(self) -> None:
        """Pods of each owner that Kubernetes itself has."""
        labels = {"app": "stray"}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(schedulerName=SCHEDULER)}
        always = {**template["spec"], "restartPolicy": "Always"}
        selector = {"matchLabels": labels}
        apps = {"selector": selector, "template": {**template, "spec": always}}
        specs = {
            kinds.DEPLOYMENTS: apps,
            kinds.REPLICA_SETS: apps,
            kinds.STATEFUL_SETS: {**apps, "serviceName": "stray"},
            kinds.DAEMON_SETS: apps,
            # Its own controller runs here and would release a pod without its labels.
            kinds.KUBERNETES_JOBS: {"template": template, "managedBy": "example.com/nobody"},
        }
        for kind, spec in specs.items():
            name = f"stray-{kind.kind.lower()}"
            owner = await self.make(kind, name, spec=spec)
            reference = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "name": name,
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
            await self.make(
                kinds.PODS,
                name,
                metadata={
                    "ownerReferences": [reference],
                    "annotations": {keys.RUN_SECONDS: "600"},
                },
                spec=pod_spec(schedulerName=SCHEDULER),
            )
        for kind in specs:
            await self.bound(f"stray-{kind.kind.lower()}")

    async def bound(self, pod: str) -> None:
        """Wait until a pod has a node."""

        async def has_node() -> bool:
            if not await self._api.exists(f"{PODS}/{pod}"):
                return False
            return bool((await self._api.get(f"{PODS}/{pod}"))["spec"].get("nodeName"))

        await self.until(f"pod {pod} bound", has_node)

    async def queues_and_topology(self) -> None:
        """A queue that closes, and who is near whom."""
        await self.make(kinds.QUEUES, "night", spec={"weight": 1})
        await self.queue_is("night", "Open")
        await self.order("night", "CloseQueue", kinds.QUEUES)
        await self.queue_is("night", "Closed")
        period = {"startTime": "2036-12-01T08:00:00Z", "duration": "4h"}
        reserved = {**period, "allNodes": True, "maintenance": True}
        await self.make(kinds.ADVANCE_RESERVATIONS, "later", spec=reserved)
        members = [{"type": "Node", "selector": {"regexMatch": {"pattern": ".*"}}}]
        await self.make(kinds.HYPER_NODES, "rack", spec={"tier": 1, "members": members})

        async def is_counted() -> bool:
            found = await self._api.get(path(kinds.HYPER_NODES, "rack"))
            return bool(found.get("status", {}).get("nodeCount", 0) > 0)

        await self.until("HyperNode rack counted", is_counted)

    async def queue_is(self, name: str, state: str) -> None:
        """Wait for a queue's state."""

        async def is_so() -> bool:
            found = await self._api.get(path(kinds.QUEUES, name))
            return bool(found.get("status", {}).get("state") == state)

        await self.until(f"queue {name} {state}", is_so)

    async def rejections(self) -> None:
        """The objects that the webhooks reject, with their messages."""
        with pytest.raises(ApiError, match=r"spec\.queue"):
            await self.make(kinds.JOBS, "wrong", spec=job_spec(queue="nowhere"))


async def publish_stale_records(connection: dict[str, Any], cell: str) -> None:
    """Publish a record for one object of each kind as a monitor that was replaced long ago."""
    async with aiokafka.AIOKafkaProducer(**connection) as producer:
        for topic in topics.SNAPSHOTS.values():
            headers = [("ce_id", b"monitor/0/7"), ("ce_type", b"stromboli.cluster.object_gone.v1")]
            await producer.send_and_wait(
                topic.full_name(cell), b"{}", key=b"users/hidden", headers=headers
            )

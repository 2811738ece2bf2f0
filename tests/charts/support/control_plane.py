"""A control plane and a broker in which the charts are installed as the guide describes, and their
services, each with its own service account.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stromboli.testkit.parts import kubernetes, ports, tools
from stromboli.testkit.parts.api import Api
from stromboli.testkit.parts.part import Part
from stromboli.testkit.real_system import SimulatedNodes
from tests.charts.support import helm, install_guide, pod_process, trial_broker

NAMESPACE = "stromboli"
TRIAL = ("--set", "global.kafka.trial=true")
SERVICE_ACCOUNTS = "system:serviceaccounts"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"


def account(service: str) -> str:
    """The user name of a service's pods."""
    return f"system:serviceaccount:{NAMESPACE}:stromboli-{service}"


class ControlPlane:
    """The parts, and a shell in which the guide's commands run."""

    def __init__(self, found: tools.Tools, state: Path) -> None:
        self._tools = found
        self.state = state
        groups = (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{NAMESPACE}")
        users = [kubernetes.User(account(service), groups) for service in helm.SERVICES]
        self.etcd = kubernetes.Etcd(found, state / "etcd")
        self.api_server = kubernetes.ApiServer(
            found, state / "kube-apiserver", self.etcd, users=users, audited=True
        )
        self.controllers = kubernetes.ControllerManager(
            found, state / "kube-controller-manager", self.api_server
        )
        trial = helm.rendered("stromboli", *TRIAL, release="stromboli")
        self.broker = trial_broker.Broker(found, state / "kafka", trial)

    async def start(self) -> None:
        """All but the controllers, which should see definitions first."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.broker.start())
            tasks.create_task(self._start_api_server())

    async def _start_api_server(self) -> None:
        await self.etcd.start()
        await self.api_server.start()

    async def stop(self) -> None:
        """Stop all parts."""
        parts: tuple[Part, ...] = (self.controllers, self.api_server, self.etcd, self.broker)
        for part in parts:
            await part.stop()

    def sh(self, commands: str, charts: Path = helm.ROOT) -> str:
        """Run a command of the guide with the charts of a working tree and return its output.

        Only the addresses of the guide's examples are replaced by those of the test.
        """
        folder = self.state / "shell"
        folder.mkdir(exist_ok=True)
        for name in ("charts", "services"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(charts / name)
        values = install_guide.block("values.yaml")
        (folder / "values.yaml").write_text(
            values.replace("kafka.example.com:9093", self.broker.locked)
        )
        (folder / "ca.crt").write_bytes(self.broker.authority)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env={
                **os.environ,
                "PATH": ":".join(
                    (str(self._tools.bin), str(Path(sys.executable).parent), os.environ["PATH"])
                ),
                "KUBECONFIG": str(self.api_server.kubeconfig()),
                "KAFKA_PASSWORD": trial_broker.PASSWORD,
                "HOME": str(folder),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{commands}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    async def objects(self) -> list[helm.Object]:
        """The configuration of the services' pods as stored in the cluster."""
        found: list[helm.Object] = []
        async with self.api_server.client() as api:
            for path, kind in (
                (f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", "Deployment"),
                (f"/api/v1/namespaces/{NAMESPACE}/secrets", "Secret"),
                (f"/api/v1/namespaces/{NAMESPACE}/configmaps", "ConfigMap"),
                (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles", "Role"),
                (
                    f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
                    "RoleBinding",
                ),
                ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole"),
                ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "ClusterRoleBinding"),
            ):
                items = (await api.get(path))["items"]
                found += [{"kind": kind, **each} for each in items]
        return found


class Services:
    """The services that a cluster's Deployments describe, running."""

    def __init__(self, control: ControlPlane, objects: list[helm.Object]) -> None:
        self.control = control
        self.objects = objects
        self._installed: dict[str, Any] = {}
        self.pods = {
            service: pod_process.Pod(service, objects, control.state / service, self._over(service))
            for service in helm.SERVICES
        }
        kubeconfig = control.api_server.kubeconfig()
        self.nodes = SimulatedNodes(control.state / "nodes", 2, kubeconfig)

    def _over(self, service: str) -> dict[str, str]:
        """What differs on one machine: who it is by file, one broker, ports of others."""
        over = {"STROM_KAFKA_REPLICATION_FACTOR": "1"}
        if service != "scheduler":
            kubeconfig = self.control.api_server.kubeconfig(account(service))
            over["STROM_KUBERNETES_KUBECONFIG"] = str(kubeconfig)
        if service == "admission":
            over["STROM_ADMISSION_CERTIFICATE_NAMES"] = ports.LOOPBACK
            if not self._is_open():
                over["STROM_ADMISSION_REST_PORT"] = "0"
        return over

    def _is_open(self) -> bool:
        """Whether REST has a port of its pod, as it has none by default."""
        pod = helm.the_only(self.objects, "Deployment", "-admission")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        return "rest" in [each["name"] for each in container["ports"]]

    async def follow(self, service: str) -> None:
        """Replace the process by one of the Deployment's present pod template."""
        await self.pods[service].stop()
        self.objects = await self.control.objects()
        state = self.control.state / f"{service}-next"
        self.pods[service] = pod_process.Pod(service, self.objects, state, self._over(service))
        await self.pods[service].start()

    async def start(self) -> None:
        """Start them concurrently, then direct the API server to the webhooks on this machine."""
        async with asyncio.TaskGroup() as tasks:
            for part in (*self.pods.values(), self.nodes):
                tasks.create_task(part.start())
        await self.lead(here=True)

    async def lead(self, *, here: bool) -> None:
        """Direct the API server to the webhooks on this machine, or back to the installed Service;
        the CA stays the same.
        """
        async with self.control.api_server.client() as api:
            for kind in ("mutating", "validating"):
                await self._lead(api, f"{WEBHOOKS}/{kind}webhookconfigurations", here=here)

    async def _lead(self, api: Api, path: str, *, here: bool) -> None:
        (found,) = (await api.get(path))["items"]
        changes: list[dict[str, Any]] = []
        for place, webhook in enumerate(found["webhooks"]):
            client = dict(webhook["clientConfig"])
            if "service" in client:
                self._installed[webhook["name"]] = client["service"]
            service = self._installed[webhook["name"]]
            port = self.pods["admission"].port("webhooks")
            url = f"https://{ports.LOOPBACK}:{port}{service['path']}"
            way = {"url": url} if here else {"service": service}
            led = {**way, "caBundle": client["caBundle"]}
            changes.append(
                {"op": "replace", "path": f"/webhooks/{place}/clientConfig", "value": led}
            )
        await api.patch(f"{path}/{found['metadata']['name']}", changes, "json")

    async def stop(self) -> None:
        """Stop all services."""
        await asyncio.gather(*(part.stop() for part in (*self.pods.values(), self.nodes)))


@asynccontextmanager
async def running_control_plane(found: tools.Tools, state: Path) -> AsyncIterator[ControlPlane]:
    """Running while inside."""
    control = ControlPlane(found, state)
    try:
        await control.start()
        yield control
    finally:
        await control.stop()


@asynccontextmanager
async def running_services(control: ControlPlane) -> AsyncIterator[Services]:
    """Running while inside."""
    services = Services(control, await control.objects())
    try:
        await services.start()
        yield services
    finally:
        await services.stop()

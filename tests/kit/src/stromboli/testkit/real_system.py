"""The four services as processes on the real parts, with webhooks and simulated nodes.

Each service is a part: it can be killed and started again on its ports. All settings of a service
are in its environment, as in a cluster.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import trustme

from stromboli.admission.webhooks import webhooks
from stromboli.shared.api import kinds
from stromboli.shared.jobspec import crds
from stromboli.shared.jobspec.policies import pod_annotations
from stromboli.testkit import records
from stromboli.testkit.parts import kubernetes, kwok, tools
from stromboli.testkit.parts.api import Api, ApiError
from stromboli.testkit.parts.kubelets import KubeletNodes, KubeletOptions
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.real import RealParts

SERVICES = ("monitor", "scheduler", "controller", "admission")
LOOPBACK = "127.0.0.1"
PORTS = {"admission": 3, "monitor": 2}
HEALTH = {"admission": 2}
"""Service -> index of the health port among its ports, if it is not the first."""


class Service(Part):
    """One service. Its first port serves health; admission's serves REST too, its second one
    webhooks, and its third one health alone; the monitor's second one agents. ``command``: replaces
    the service of this working tree."""

    def __init__(
        self,
        name: str,
        state: Path,
        environment: Mapping[str, str],
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(state)
        self.name = name  # type: ignore[misc]  # one class serves for four parts
        self.port_count = PORTS.get(name, 1)  # type: ignore[misc]
        self.given = environment
        self._command = command or [sys.executable, "-m", f"stromboli.{name}"]

    def command(self) -> list[str]:
        """The command line of the service."""
        return list(self._command)

    def environment(self) -> dict[str, str]:
        """The settings of the service."""
        own: dict[str, str | int]
        if self.name == "admission":
            own = {"REST_PORT": self.ports[0], "WEBHOOK_PORT": self.ports[1]}
        elif self.name == "monitor":
            own = {"AGENTS_PORT": self.ports[1]}
        else:
            own = {}
        own |= {"HEALTH_PORT": self.ports[HEALTH.get(self.name, 0)], "HEALTH_HOST": LOOPBACK}
        own["INSTANCE"] = self.state.name
        prefix = f"STROM_{self.name.upper()}_"
        # A replica that restarts in the same directory has the same identity, as a container in its
        # pod.
        replica = {"STROM_LEASE_IDENTITY": self.state.name}
        return {**self.given, **replica, **{f"{prefix}{key}": str(own[key]) for key in own}}

    @property
    def url(self) -> str:
        """The URL of its first port."""
        return f"http://{LOOPBACK}:{self.ports[0]}"

    async def is_ready(self) -> bool:
        """Whether ``/readyz`` returns success."""
        return await kubernetes.answers_ok(f"{self.url}/readyz")


class SimulatedNodes(Part):
    """Nodes that run pods for the duration in their annotation."""

    name = "nodes"
    port_count = 0

    def __init__(self, state: Path, count: int, kubeconfig: Path, *options: str) -> None:
        super().__init__(state)
        self._arguments = ["--nodes", str(count), "--kubeconfig", str(kubeconfig), *options]

    def command(self) -> list[str]:
        """The runner's command."""
        return [sys.executable, "-m", "stromboli.embedded.nodes", *self._arguments]

    async def is_ready(self) -> bool:
        """Whether all nodes exist."""
        return "simulated nodes are up" in self.process.logged()


class ProcessNodes(Part):
    """Nodes that run pods' commands as processes of this machine."""

    name = "process-nodes"
    port_count = 0

    def __init__(self, state: Path, count: int, kubeconfig: Path, *options: str) -> None:
        super().__init__(state)
        folders = ["--kubeconfig", str(kubeconfig), "--state", str(state / "files")]
        self._arguments = ["--nodes", str(count), *folders, *options]

    def command(self) -> list[str]:
        """The agent's command."""
        return [sys.executable, "-m", "stromboli.embedded.processes", *self._arguments]

    async def is_ready(self) -> bool:
        """Whether all nodes exist."""
        return "process nodes are up" in self.process.logged()


class RealSystem:
    """Real parts, services, webhooks: started on entry, stopped on exit.

    ``fake_nodes`` are KWOK's, on which pods run indefinitely; ``simulated_nodes`` and
    ``process_nodes`` are Stromboli's. Measured: ready after about 15 s on two cores.
    """

    def __init__(
        self,
        state: Path,
        *,
        fake_nodes: int = 0,
        simulated_nodes: int = 0,
        process_nodes: int = 0,
        node_options: tuple[str, ...] = (),
        fsync: bool = False,
        environment: Mapping[str, str] | None = None,
        commands: Mapping[str, Sequence[str]] | None = None,
        controllers: Sequence[str] = (),
        stages: Path = kwok.STAGES,
        kubelets: int = 0,
        kubelet_options: KubeletOptions | None = None,
        node_grace_s: int | None = None,
        api_server_options: Sequence[str] = (),
    ) -> None:
        """``state``: the folder for all state. ``environment``: further settings; ``commands``:
        service -> the command that replaces the service of this working tree; ``controllers``: of
        Kubernetes, beside the usual ones; ``stages``: what KWOK plays; ``kubelets``: nodes with
        real kubelets and containers, for which ``make kubelet-tools`` must have been run;
        ``kubelet_options``: see ``KubeletNodes``; ``node_grace_s``: see ``ControllerManager``;
        ``api_server_options``: see ``ApiServer``."""
        self._authority = trustme.CA()
        client = client_certificate(self._authority, state) if kubelets else None
        self.parts = RealParts(
            state / "parts",
            nodes=fake_nodes,
            definitions=crds.documents(),
            controllers=controllers,
            stages=stages,
            kubelet_client=client,
            node_grace_s=node_grace_s,
            api_server_options=api_server_options,
            fsync=fsync,
        )
        self.kubelets: KubeletNodes | None = None
        if kubelets:
            kubelet_tools, server = tools.locate_kubelets(), self.parts.api_server
            self.kubelets = KubeletNodes(
                kubelet_tools,
                state / "kubelets",
                server,
                self._authority,
                kubelets,
                kubelet_options,
            )
        self._state = state
        self._simulated = simulated_nodes
        self._processes = process_nodes
        self._node_options = node_options
        self._further = dict(environment or {})
        self._commands = commands or {}
        self.services: dict[str, Service] = {}
        self.nodes: SimulatedNodes | None = None
        self.process_nodes: ProcessNodes | None = None

    @property
    def url(self) -> str:
        """Address of REST."""
        return self.services["admission"].url

    async def start(self) -> None:
        """Start the parts, then the services concurrently, then the webhooks."""
        await self.parts.start()
        await self.start_services()

    async def start_services(self) -> None:
        """Start the services concurrently, then register the webhooks; the parts must be
        running."""
        try:
            certificate = self._authority.issue_cert(LOOPBACK)
            chain, key = self._state / "webhooks.pem", self._state / "webhooks.key"
            chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
            key.write_bytes(certificate.private_key_pem.bytes())
            key.chmod(0o600)
            if self._further.get("STROM_CONTROLLER_BOUND_PODS") != "false":
                await self._protect_annotations()
            environment = {
                "STROM_KAFKA_BOOTSTRAP": self.parts.kafka_bootstrap,
                "STROM_KUBERNETES_KUBECONFIG": str(self.parts.kubeconfig),
                **self._further,
            }
            for name in SERVICES:
                own = dict(environment)
                if name == "admission":
                    own["STROM_ADMISSION_CERTIFICATE_FILE"] = str(chain)
                    own["STROM_ADMISSION_KEY_FILE"] = str(key)
                command = self._commands.get(name)
                self.services[name] = Service(name, self._state / name, own, command)
            if self._simulated:
                self.nodes = SimulatedNodes(
                    self._state / "nodes",
                    self._simulated,
                    self.parts.kubeconfig,
                    *self._node_options,
                )
            if self._processes:
                self.process_nodes = ProcessNodes(
                    self._state / "process-nodes",
                    self._processes,
                    self.parts.kubeconfig,
                    *self._node_options,
                )
            async with asyncio.TaskGroup() as group:
                for part in self._ours():
                    group.create_task(part.start())
                if self.kubelets is not None:
                    group.create_task(self.kubelets.start())
            await self._register_webhooks()
        except BaseException:
            await self.stop()
            raise

    async def stop_services(self) -> None:
        """Stop the services and remove their webhooks, as an uninstallation does."""
        await asyncio.gather(*(service.stop() for service in self.services.values()))
        async with self.parts.client() as api:
            for document in self._webhooks():
                await api.delete(_path(document, document["metadata"]["name"]))

    def _ours(self) -> list[Part]:
        nodes = (self.nodes, self.process_nodes)
        return [*self.services.values(), *(part for part in nodes if part is not None)]

    async def _protect_annotations(self) -> None:
        """Install the admission policy that is required for pods which are created with their
        nodes."""
        async with self.parts.client() as api:
            for document in pod_annotations.documents():
                kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
                if not await api.exists(f"{kind.path()}/{document['metadata']['name']}"):
                    await api.create(kind.path(), document)

    async def _register_webhooks(self) -> None:
        async with self.parts.client() as api:
            for document in self._webhooks():
                await api.create(_path(document), document)
            await _until_called(api)

    def _webhooks(self) -> list[dict[str, Any]]:
        url = f"https://{LOOPBACK}:{self.services['admission'].ports[1]}"
        authority = self._authority.cert_pem.bytes()
        pods = bool(self._further.get("STROM_ADMISSION_RESOURCE_GROUPS_FILE"))
        return list(webhooks.configurations(url, authority, resource_groups=pods))

    def standby(self, name: str) -> Service:
        """Another replica of a service; the test starts and stops it."""
        active = self.services[name]
        return Service(name, self._state / f"{name}-standby", active.given)

    async def stop(self) -> None:
        """Stop the services, then the parts."""
        if self.kubelets is not None:
            await self.kubelets.stop()
        await asyncio.gather(*(part.stop() for part in self._ours()))
        await self.parts.stop()

    async def __aenter__(self) -> RealSystem:
        """Start everything."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        await self.stop()


def client_certificate(authority: trustme.CA, state: Path) -> tuple[Path, Path]:
    """Write the certificate and key with which the API server calls kubelets."""
    issued = authority.issue_cert("kube-apiserver.test", common_name="kube-apiserver")
    state.mkdir(parents=True, exist_ok=True)
    chain, key = state / "kubelet-client.pem", state / "kubelet-client.key"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.touch(mode=0o600)
    key.write_bytes(issued.private_key_pem.bytes())
    return chain, key


def _path(webhook: Mapping[str, Any], name: str = "") -> str:
    """The path of a webhook configuration, or of all of its kind."""
    plural = webhook["kind"].lower() + "s"
    return f"/apis/admissionregistration.k8s.io/v1/{plural}" + (f"/{name}" if name else "")


async def _until_called(api: Api) -> None:
    """Return when the API server calls the webhooks, shortly after their registration."""
    probe = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "webhook-probe"},
        "spec": {
            "queue": "there-is-no-such-queue",
            "tasks": [
                {
                    "name": "t",
                    "replicas": 0,
                    "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
                }
            ],
        },
    }
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    async with asyncio.timeout(records.DEADLINE_S):
        while True:
            try:
                await api.create(f"{path}?dryRun=All", probe)
            except ApiError:
                return
            await asyncio.sleep(0.1)

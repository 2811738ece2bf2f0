"""Third-party controllers as processes over a real API server, each installed by its own manifests.

They are the released programs with the options that a user sets; only addresses differ from an
installation in pods.
"""

from __future__ import annotations

import base64
import shutil
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import trustme
import yaml

from stromboli.testkit.parts import kubernetes, ports
from stromboli.testkit.parts.api import Api
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import OperatorTool

Document = dict[str, Any]
HOST = "localhost"
"""An external name of a Service, for which an IP address is not allowed."""
FAST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A definition has 20,000 lines: seconds in Python, a tenth of it in C."""


def documents(path: Path) -> list[Document]:
    """The objects in a file of YAML."""
    return [found for found in yaml.load_all(path.read_text(), FAST) if found]


async def define(api: Api, files: Iterable[Path]) -> None:
    """Create the custom resource definitions in files."""
    for path in files:
        for document in documents(path):
            if document["kind"] == "CustomResourceDefinition":
                await api.establish(document)


class Operator(Part):
    """A third-party controller, installed at its first start."""

    FIXED_PORTS: ClassVar[tuple[int, ...]] = ()
    """On which it listens whatever its options say."""

    def __init__(self, tool: OperatorTool, state: Path, server: kubernetes.ApiServer) -> None:
        super().__init__(state)
        self.tool = tool
        self._server = server
        self._installed = False

    async def prepare(self) -> None:
        """Install its definitions and what else its manifests have. Raises OSError if another
        process has a port that it cannot do without."""
        for port in self.FIXED_PORTS:
            if not is_free(port):
                raise OSError(
                    f"{self.name} needs port {port} and cannot be given another one: end the"
                    f" process that listens on it (ss -ltnp 'sport = :{port}')"
                )
        if not self._installed:
            async with self._server.client() as api:
                await self.install(api)
            self._installed = True

    async def install(self, api: Api) -> None:
        """Create the objects that it needs."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Where the API server is."""
        return {"KUBECONFIG": str(self._server.kubeconfig())}


class TrainingOperator(Operator):
    """Kubeflow's training-operator with its gang scheduling for Volcano, and its validating
    webhooks.

    It reads its certificate below a fixed path, where a kubelet would mount its Secret. It runs in
    a mount namespace in which a folder of ours is there, so that several of it run side by side.
    """

    name: ClassVar[str] = "training-operator"
    port_count: ClassVar[int] = 2
    NAMESPACE = "kubeflow"
    KINDS = ("pytorchjob", "tfjob")
    WEBHOOKS = "validator.training-operator.kubeflow.org"
    SECRET = "training-operator-webhook-cert"
    MOUNT = "/tmp/k8s-webhook-server"
    IN_NAMESPACE = f'mkdir -p {MOUNT} && mount --bind "$0" {MOUNT} && exec "$@"'

    async def install(self, api: Api) -> None:
        """Its definitions, an empty Secret for its certificates, and its webhooks."""
        self._certificates.mkdir(parents=True)
        manifests = self.tool.directory / "manifests" / "base"
        definitions = manifests / "crds"
        await define(api, [definitions / f"kubeflow.org_{kind}s.yaml" for kind in self.KINDS])
        await api.create_namespace(self.NAMESPACE)
        secret = {"kind": "Secret", "metadata": {"name": self.SECRET}}
        await api.create(self._secrets, secret)
        await self._lead_to_us(api)
        (hooks,) = documents(manifests / "webhook" / "manifests.yaml")
        hooks["metadata"]["name"] = self.WEBHOOKS
        hooks["webhooks"] = [hook for hook in hooks["webhooks"] if self._serves(hook)]
        for hook in hooks["webhooks"]:
            service = {"name": self.name, "namespace": self.NAMESPACE, "port": self.ports[0]}
            hook["clientConfig"]["service"].update(service)
        await api.create(
            "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", hooks
        )

    @property
    def _secrets(self) -> str:
        return f"/api/v1/namespaces/{self.NAMESPACE}/secrets"

    @property
    def _certificates(self) -> Path:
        return self.state / "webhook-server" / "serving-certs"

    def _serves(self, hook: Mapping[str, Any]) -> bool:
        return any(kind in hook["name"] for kind in self.KINDS)

    async def _lead_to_us(self, api: Api) -> None:
        """A Service whose name leads to this machine, as its certificate is for that name."""
        service = {
            "kind": "Service",
            "metadata": {"name": self.name},
            "spec": {"type": "ExternalName", "externalName": HOST},
        }
        await api.create(f"/api/v1/namespaces/{self.NAMESPACE}/services", service)

    def command(self) -> list[str]:
        """As docs/operators.md says, with ports of this machine."""
        isolated = ["--user", "--map-root-user", "--mount", "sh", "-c", self.IN_NAMESPACE]
        return [
            shutil.which("unshare") or "unshare",
            *isolated,
            str(self._certificates.parent),
            self.tool.program,
            "--gang-scheduler-name=volcano",
            *(f"--enable-scheme={kind}" for kind in self.KINDS),
            "--metrics-bind-address=0",
            f"--webhook-server-port={self.ports[0]}",
            f"--health-probe-bind-address={ports.LOOPBACK}:{self.ports[1]}",
        ]

    async def is_ready(self) -> bool:
        """Its own readiness: it serves webhooks."""
        if not list(self._certificates.iterdir()):
            await self._mount()
        return await kubernetes.answers_ok(f"http://{ports.LOOPBACK}:{self.ports[1]}/readyz")

    async def _mount(self) -> None:
        """Write its Secret to files, as a kubelet does."""
        async with self._server.client() as api:
            secret = await api.get(f"{self._secrets}/{self.SECRET}")
        for name, content in sorted(secret.get("data", {}).items(), reverse=True):
            (self._certificates / name).write_bytes(base64.b64decode(content))


class MpiOperator(Operator):
    """Kubeflow's mpi-operator with its gang scheduling for Volcano."""

    name: ClassVar[str] = "mpi-operator"
    port_count: ClassVar[int] = 0
    FIXED_PORTS: ClassVar[tuple[int, ...]] = (8080,)
    NAMESPACE = "mpi-operator"
    RECONCILES = "Started workers"
    """Its log's line when it is the leader and has read all objects."""

    async def install(self, api: Api) -> None:
        """Its definition, and the namespace of its lease."""
        manifests = self.tool.directory / "manifests" / "base"
        await define(api, [manifests / "kubeflow.org_mpijobs.yaml"])
        await api.create_namespace(self.NAMESPACE)

    def command(self) -> list[str]:
        """As docs/operators.md says."""
        return [self.tool.program, "--gang-scheduling=volcano"]

    async def is_ready(self) -> bool:
        """Whether it reconciles."""
        return self.RECONCILES in self.process.logged()


class KubeRay(Operator):
    """The operator of Ray with its gang scheduling for Volcano."""

    name: ClassVar[str] = "kuberay"
    port_count: ClassVar[int] = 2

    async def install(self, api: Api) -> None:
        """Its definitions."""
        await define(api, self.tool.files("config/crd/bases"))

    def command(self) -> list[str]:
        """As docs/operators.md says, with ports of this machine."""
        metrics, health = (f"{ports.LOOPBACK}:{port}" for port in self.ports)
        return [
            self.tool.program,
            "--batch-scheduler=volcano",
            "--enable-leader-election=false",
            f"--metrics-addr={metrics}",
            f"--health-probe-bind-address={health}",
        ]

    async def is_ready(self) -> bool:
        """Its own readiness."""
        return await kubernetes.answers_ok(f"http://{ports.LOOPBACK}:{self.ports[1]}/readyz")


class JobSet(Operator):
    """The controller of JobSet with its webhooks, on certificates of ours."""

    name: ClassVar[str] = "jobset"
    port_count: ClassVar[int] = 2
    POD_SELECTOR: ClassVar[Document] = {
        "matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]
    }
    """The pods that concern its webhooks, as its kustomization has it."""

    async def install(self, api: Api) -> None:
        """Its definition, its configuration and its webhooks."""
        components = self.tool.directory / "config" / "components"
        await define(api, self.tool.files("config/components/crd/bases"))
        authority = trustme.CA()
        self._write_certificate(authority)
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        for document in documents(components / "webhook" / "manifests.yaml"):
            document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
            for hook in document["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                url = f"https://{ports.LOOPBACK}:{self.ports[0]}{path}"
                hook["clientConfig"] = {"url": url, "caBundle": bundle}
                if hook["rules"][0]["resources"] == ["pods"]:
                    hook["objectSelector"] = self.POD_SELECTOR
            plural = document["kind"].lower() + "s"
            await api.create(f"/apis/admissionregistration.k8s.io/v1/{plural}", document)

    def _write_certificate(self, authority: trustme.CA) -> None:
        issued = authority.issue_cert(ports.LOOPBACK)
        self._certificates.mkdir(parents=True)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        (self._certificates / "tls.crt").write_bytes(chain)
        (self._certificates / "tls.key").write_bytes(issued.private_key_pem.bytes())
        configuration = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {
                "host": ports.LOOPBACK,
                "port": self.ports[0],
                "certDir": str(self._certificates),
            },
            "internalCertManagement": {"enable": False},
            "leaderElection": {"leaderElect": False},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"{ports.LOOPBACK}:{self.ports[1]}"},
        }
        self._configuration.write_text(yaml.safe_dump(configuration))

    @property
    def _certificates(self) -> Path:
        return self.state / "certificates"

    @property
    def _configuration(self) -> Path:
        return self.state / "configuration.yaml"

    def command(self) -> list[str]:
        """With its configuration."""
        return [self.tool.program, f"--config={self._configuration}"]

    async def is_ready(self) -> bool:
        """Its own readiness: it serves webhooks."""
        return await kubernetes.answers_ok(f"http://{ports.LOOPBACK}:{self.ports[1]}/readyz")


class ArgoWorkflows(Operator):
    """The controller of Argo Workflows. A pod of each step has its executor beside the command."""

    name: ClassVar[str] = "argo-workflows"
    port_count: ClassVar[int] = 0
    FIXED_PORTS: ClassVar[tuple[int, ...]] = (6060,)
    EXECUTOR = "localhost/argoproj/argoexec:1"
    """The image of the executor."""
    SETTINGS: ClassVar[Document] = {
        "kind": "ConfigMap",
        "metadata": {"name": "workflow-controller-configmap"},
        "data": {"metricsConfig": "enabled: false\n"},
    }

    async def install(self, api: Api) -> None:
        """Its definitions, its settings, and the rights of its executor in the namespace."""
        await define(api, self.tool.files("manifests/base/crds/minimal"))
        await api.create("/api/v1/namespaces/default/configmaps", self.SETTINGS)
        executor = self.tool.directory / "manifests" / "quick-start" / "base" / "executor"
        rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        (role,) = documents(executor / "emissary" / "executor-role.yaml")
        await api.create(f"{rights}/roles", role)
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role"}
        binding = {
            "kind": "RoleBinding",
            "metadata": {"name": "executor"},
            "roleRef": {**reference, "name": role["metadata"]["name"]},
            "subjects": [subject],
        }
        await api.create(f"{rights}/rolebindings", binding)

    def environment(self) -> dict[str, str]:
        """Where the API server is; this controller is the only one."""
        return {**super().environment(), "LEADER_ELECTION_DISABLE": "true"}

    def command(self) -> list[str]:
        """As docs/operators.md says, with the image of the tests."""
        return [
            self.tool.program,
            f"--executor-image={self.EXECUTOR}",
            "--executor-image-pull-policy=IfNotPresent",
        ]

    async def is_ready(self) -> bool:
        """Its own liveness."""
        return await kubernetes.answers_ok(f"http://{ports.LOOPBACK}:6060/healthz")


def is_free(port: int) -> bool:
    """Whether a process could listen on a port of all addresses now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

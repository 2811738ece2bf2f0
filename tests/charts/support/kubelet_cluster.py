"""A cluster with real nodes, in which the charts are installed as docs/install.md describes.

Everything that acts is real: API server, controllers, scheduler, kubelets, containers of images
built from our Dockerfiles. What a cluster brings and is not here: kube-proxy (names of Services
lead to pods, and the API server calls webhooks at the pods' addresses) and a network that enforces
NetworkPolicies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trustme
import yaml

from stromboli.testkit.parts import kubernetes, tools
from stromboli.testkit.parts.engine import images
from stromboli.testkit.parts.engine.daemon import Engine
from stromboli.testkit.parts.kubelets import KubeletNodes, KubeletOptions
from stromboli.testkit.real_system import client_certificate
from tests.charts.support import helm, install_guide

NODES = 2
REGISTRY = "registry.example.com/stromboli"
"""The name in the guide; its images are on the nodes, and are not pulled."""
CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "endpointslice-controller",
    "disruption-controller",
)
WITHIN_S = 240.0
POLL_S = 0.3
VOLUME_BYTES = "10Gi"


def save_images(engine: Engine, found: tools.Tools, archive: Path) -> None:
    """Build the images of all services and of the trial broker, and write them as an archive."""
    images.make_python(engine)
    broker = yaml.safe_load((helm.CHARTS["kafka"] / "Chart.yaml").read_text())["appVersion"]
    names = [f"apache/kafka:{broker}"]
    images.make(engine, names[0], images.kafka(found))
    version = yaml.safe_load((helm.CHARTS["stromboli"] / "Chart.yaml").read_text())["appVersion"]
    for service in (*helm.SERVICES, *helm.SEPARATE):
        name = f"{REGISTRY}/stromboli-{service}:{version}"
        names.append(name)
        file = f"--file=services/{service}/Dockerfile"
        trusted = f"--build-arg=CA_CERTIFICATES={images.certificates()}"
        engine.docker("build", file, trusted, f"--tag={name}", ".", folder=helm.ROOT)
    engine.docker("save", f"--output={archive}", *names)


class KubeletCluster:
    """The parts, and a shell in which the guide's commands run."""

    def __init__(
        self, found: tools.Tools, kubelet_tools: tools.KubeletTools, state: Path, archive: Path
    ) -> None:
        self.state = state
        self._tools = found
        authority = trustme.CA()
        self.etcd = kubernetes.Etcd(found, state / "etcd")
        self.api_server = kubernetes.ApiServer(
            found,
            state / "kube-apiserver",
            self.etcd,
            audited=True,
            kubelet_client=client_certificate(authority, state),
            # Webhooks are called at the addresses of pods: those of Services need kube-proxy.
            options=("--enable-aggregator-routing=true",),
        )
        self.controllers = kubernetes.ControllerManager(
            found, state / "kube-controller-manager", self.api_server, further=CONTROLLERS
        )
        self.scheduler = kubernetes.Scheduler(
            kubelet_tools.scheduler, state / "kube-scheduler", self.api_server
        )
        # All CPUs of the machine on each node: what the charts request is more than tests use.
        options = KubeletOptions(archives=(archive,), settings={"systemReserved": {}})
        self.kubelets = KubeletNodes(
            kubelet_tools, state / "kubelets", self.api_server, authority, NODES, options
        )

    async def start(self) -> None:
        """Start all parts, then give the broker's claim a volume."""
        try:
            await self.etcd.start()
            await self.api_server.start()
            await self.controllers.start()
            await self.scheduler.start()
            await self.kubelets.start()
        except BaseException:
            await self.stop()
            raise
        self._offer_volume()

    def _offer_volume(self) -> None:
        folder = self.state / "kafka-data"
        folder.mkdir()
        folder.chmod(0o777)  # a cluster's storage would give it to the pod's group
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "kafka"},
            "spec": {
                "capacity": {"storage": VOLUME_BYTES},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": str(folder)},
            },
        }
        self.apply(volume)

    async def stop(self) -> None:
        """Stop all parts."""
        await self.kubelets.stop()
        for part in (self.scheduler, self.controllers, self.api_server, self.etcd):
            await part.stop()

    def sh(self, commands: str, **given: str) -> str:
        """What commands of the guide print, with the charts of the working tree. ``given``:
        further variables."""
        folder = self.state / "shell"
        folder.mkdir(exist_ok=True)
        for name in ("charts", "services", "examples"):
            if not (folder / name).exists():
                (folder / name).symlink_to(helm.ROOT / name)
        path = (str(self._tools.bin), str(Path(sys.executable).parent), os.environ["PATH"])
        own = {
            "PATH": os.pathsep.join(path),
            "KUBECONFIG": str(self.api_server.kubeconfig()),
            "HOME": str(folder),
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=folder,
            env={**os.environ, **own, **given},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{commands}\n{done.stdout}\n{done.stderr}\n{self.report()}")
        return done.stdout

    def write_values(self, values: dict[str, Any]) -> None:
        """The file ``values.yaml`` of the guide's commands."""
        (self.state / "shell" / "values.yaml").write_text(yaml.safe_dump(values))

    def report(self) -> str:
        """The pods and the latest events, for a failure."""
        kubectl = [self._tools.program("kubectl"), f"--kubeconfig={self.api_server.kubeconfig()}"]
        printed = []
        for words in (
            ("get", "pods", "--all-namespaces", "--output=wide"),
            ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"),
            ("logs", "--namespace=stromboli", "--selector=app.kubernetes.io/part-of=stromboli",
             "--tail=15", "--prefix", "--max-log-requests=20"),
        ):  # fmt: skip
            done = subprocess.run([*kubectl, *words], capture_output=True, text=True, check=False)
            printed.append("\n".join(done.stdout.splitlines()[-60:]) + done.stderr)
        return "\n".join(printed)

    def apply(self, document: dict[str, Any]) -> None:
        """Create or change an object."""
        file = self.state / "object.json"
        file.write_text(json.dumps(document))
        self.sh(f"kubectl apply --filename={file}")

    def get(self, words: str) -> Any:
        """What ``kubectl get`` finds."""
        return json.loads(self.sh(f"kubectl get {words} --output=json"))

    def until(self, look: Callable[[], bool]) -> None:
        """Wait until something holds. Raises AssertionError with a report."""
        deadline = time.monotonic() + WITHIN_S
        while not look():
            assert time.monotonic() < deadline, self.report()
            time.sleep(POLL_S)

    def comes_to(self, job: str, phase: str) -> None:
        """Wait until a job of the namespace ``default`` is in a phase."""
        self.until(lambda: self.phase(job) == phase)

    def phase(self, job: str) -> str:
        """The phase of a job; empty before it has one."""
        found = self.get(f"vcjob {job}")
        return str(found.get("status", {}).get("state", {}).get("phase", ""))

    def rolled_out(self) -> None:
        """Wait until the pods of all Deployments are those of their latest template, and ready."""
        kinds = "statefulset,deployment"
        names = self.sh(f"kubectl --namespace stromboli get {kinds} --output=name").split()
        for name in names:
            self.sh(f"kubectl --namespace stromboli rollout status {name} --timeout={WITHIN_S}s")


def install(cluster: KubeletCluster) -> None:
    """The guide's trial installation; returns when every pod is ready."""
    cluster.sh(install_guide.block("trial"))
    cluster.rolled_out()

"""The four services over real kubelets and containers, as a user and an operator have them."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml

from stromboli.client import blocking
from stromboli.client.operations import calls
from stromboli.scheduler.core.config import config_reader
from stromboli.shared.api import kinds
from stromboli.shared.messages.node_topology import TopologyObserved
from stromboli.testkit.parts.container_images import BUSYBOX
from stromboli.testkit.parts.kubelets import KubeletNode, KubeletOptions
from stromboli.testkit.parts.kubernetes import ApiServer
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.pod_network import Network
from stromboli.testkit.parts.tools import Tools
from stromboli.testkit.real_system import RealSystem
from tests.e2e.support.rest_user import STROM, Document, User

NODES = 2
"""Of one CPU each."""
NODE_GRACE_S = 10
"""How long a kubelet may be silent until its node is not ready."""
ROUNDS = range(1, 1 + int(os.environ.get("STROM_KUBELET_ROUNDS", "1")))
"""How often the tests of a file run, with one start of the system: `make e2e-kubelets`."""
OBJECTS = (
    "cronjobs.batch.volcano.sh,jobflows.flow.volcano.sh,jobtemplates.flow.volcano.sh,"
    "jobs.batch.volcano.sh,events"
)
"""What tests leave behind in their namespace."""
FOREVER = "while true; do sleep 0.2; done"
Result = TypeVar("Result")


class KubeletSystem:
    """The running system."""

    def __init__(self, system: RealSystem, tools: Tools, runner: asyncio.Runner) -> None:
        self.user = User(system.url)
        self._system = system
        self._runner = runner
        self._tools = tools
        self._kubectl = [tools.program("kubectl"), f"--kubeconfig={system.parts.kubeconfig}"]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What ``kubectl`` prints. Raises CalledProcessError."""
        command = [*self._kubectl, *arguments]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, input=stdin)
        return ran.stdout

    def create(self, *documents: Document) -> None:
        """Create objects of any kind. Raises CalledProcessError."""
        items = {"apiVersion": "v1", "kind": "List", "items": documents}
        self.kubectl("create", "--filename=-", stdin=json.dumps(items))

    def get(self, *words: str) -> Document:
        """What ``kubectl get`` finds; empty if it does not exist."""
        text = self.kubectl("get", "--ignore-not-found", *words, "--output=json")
        found: Document = json.loads(text or "{}")
        return found

    def strom(self, *arguments: str) -> str:
        """What ``strom`` prints to a user who has kubectl and a kubeconfig; options of its own come
        before ``--``."""
        words = list(arguments)
        end = words.index("--") if "--" in words else len(words)
        words[end:end] = ["--server", self._system.url]
        path = f"{self._tools.bin}:{os.environ['PATH']}"
        environment = {"PATH": path, "KUBECONFIG": str(self._system.parts.kubeconfig)}
        ran = subprocess.run(
            [str(STROM), *words],
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        )
        return ran.stdout

    @property
    def url(self) -> str:
        """The REST address."""
        return self._system.url

    @property
    def server(self) -> ApiServer:
        """The API server."""
        return self._system.parts.api_server

    @property
    def network(self) -> Network:
        """The network of the pods."""
        assert self._system.kubelets is not None
        return self._system.kubelets.network

    @property
    def agents_port(self) -> int:
        """The port on which the monitor takes reports of node agents."""
        return self._system.services["monitor"].ports[1]

    @property
    def kafka(self) -> str:
        """The broker of the services."""
        return self._system.parts.kafka_bootstrap

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the administrator."""
        return Path(self._system.parts.kubeconfig)

    def bindings(self) -> int:
        """How many Bindings of pods the API server has received."""
        lines = self.kubectl("get", "--raw", "/metrics").splitlines()
        counters = (
            line
            for line in lines
            if line.startswith("apiserver_request_total{") and 'subresource="binding"' in line
        )
        return sum(int(float(line.rpartition(" ")[2])) for line in counters)

    def reset(self) -> None:
        """Delete what tests left behind; returns when the nodes have no pods."""
        self.kubectl("delete", OBJECTS, "--all")
        self.user.until(lambda: self.kubectl("get", "pods", "--output=name"), lambda it: not it)

    def container(self, pod: Document) -> Document:
        """The status of a pod's only container; empty before it has one."""
        statuses: list[Document] = pod["status"].get("containerStatuses", [{}])
        return statuses[0]

    def topology(self, node: str) -> TopologyObserved:
        """The record of a node on ``cluster.topology``, as REST serves it."""
        with blocking.Client(self._system.url) as client:
            return client.send(calls.node_topology(node))

    def tasks(self, job: str) -> list[Document]:
        """Every attempt of a job's tasks, also of deleted pods."""
        found: list[Document] = self.user.get(job, "/tasks?history")["tasks"]
        return found

    def running(self, job: str) -> list[Document]:
        """A job's pods of which the container runs."""
        pods = self.user.pods(job)
        return [pod for pod in pods if "running" in self.container(pod).get("state", {})]

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a coroutine, in the event loop of the parts."""
        return self._runner.run(work)

    def kill_node(self, name: str) -> None:
        """End kubelet, containerd and containers of a node by SIGKILL, as a power failure does."""
        self._runner.run(self.node(name).kill())

    def start_node(self, name: str) -> None:
        """Start a node again with its disk; returns when it is ready."""
        self._runner.run(self.node(name).start())

    def kill_kubelet(self, name: str) -> None:
        """End a node's kubelet alone by SIGKILL; its containers run on."""
        self._runner.run(self.node(name).kill_kubelet())

    def restart_kubelet(self, name: str) -> None:
        """Start a killed kubelet; returns when its API answers."""
        self._runner.run(self.node(name).restart_kubelet())

    @property
    def agents_url(self) -> str:
        """Where the monitor takes reports of node agents."""
        return f"http://127.0.0.1:{self.agents_port}"

    @contextlib.contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """A further part, which runs while inside."""
        self.start(part)
        try:
            yield
        finally:
            self._runner.run(part.stop())

    def start(self, part: Part) -> None:
        """Start a part; returns when it is ready."""
        self._runner.run(part.start())

    def kill(self, part: Part) -> None:
        """End a part by SIGKILL."""
        self._runner.run(part.kill())

    def node(self, name: str) -> KubeletNode:
        """A node by its name."""
        assert self._system.kubelets is not None
        return next(node for node in self._system.kubelets.nodes if node.node == name)


@contextlib.contextmanager
def running(
    state: Path,
    tools: Tools,
    environment: Mapping[str, str],
    options: KubeletOptions | None = None,
    controllers: Sequence[str] = (),
) -> Iterator[KubeletSystem]:
    """A system with kubelets alone, whose silence is noticed; ``environment``: settings;
    ``controllers``: of Kubernetes, beside the usual ones."""
    with asyncio.Runner() as runner:
        system = RealSystem(
            state,
            environment=environment,
            kubelets=NODES,
            kubelet_options=options,
            node_grace_s=NODE_GRACE_S,
            controllers=("taint-eviction-controller", *controllers),
        )
        runner.run(system.start())
        opened = KubeletSystem(system, tools, runner)
        try:
            yield opened
        finally:
            opened.user.close()
            runner.run(system.stop())


def preempting(state: Path) -> dict[str, str]:
    """Settings of a scheduler that preempts, whose configuration is written to the folder."""
    configuration = state / "scheduler.yaml"
    actions = {"actions": "enqueue, allocate, preempt, backfill"}
    configuration.write_text(yaml.safe_dump({**config_reader.DEFAULT, **actions}))
    return {"STROM_SCHEDULER_CONFIGURATION": str(configuration)}


def job(name: str, command: list[str], *, pods: int = 1, **rest: Any) -> Document:
    """A job of containers that run a command; ``container`` and ``pod`` add fields to those."""
    return {
        "apiVersion": kinds.JOBS.api_version,
        "kind": kinds.JOBS.kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec(command, pods=pods, **rest),
    }


def spec(command: list[str], *, pods: int = 1, **rest: Any) -> Document:
    """The spec of such a job, as templates have it."""
    container = {
        "name": "main",
        "image": BUSYBOX,
        "command": command,
        "resources": {"requests": {"cpu": "500m"}},
        **rest.pop("container", {}),
    }
    pod = {"restartPolicy": "Never", "containers": [container], **rest.pop("pod", {})}
    return {
        "tasks": [{"name": "work", "replicas": pods, "template": {"spec": pod}}],
        **{"minAvailable": pods, **rest},
    }


def requests(**amounts: str) -> Document:
    """Fields of a container that requests these amounts."""
    return {"resources": {"requests": amounts}}


def shell(script: str) -> list[str]:
    """The command that runs a script."""
    return ["sh", "-c", script]


def moment(text: str) -> datetime:
    """A time as the API writes it."""
    return datetime.fromisoformat(text)

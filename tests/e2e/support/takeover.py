"""A cluster that another batch system left, the services that take it over, and its objects.

The same verbs on the real parts, where KWOK plays the nodes, and in embedded mode.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.embedded.nodes import simulated
from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit.real_system import RealSystem
from stromboli.testkit.volcano import adoption, installation, jobs
from tests.e2e.support import polling

Document = dict[str, Any]
NODES = 20
WITHIN_S = 120.0
CHECKED = (
    *(kinds.JOBS, kinds.POD_GROUPS, kinds.PODS, kinds.QUEUES),
    *(kinds.CONFIG_MAPS, kinds.SERVICES, kinds.SECRETS, kinds.NETWORK_POLICIES),
)
"""Kinds of which Volcano reads or makes objects."""


class Services(Protocol):
    """The installation of Stromboli, and the cluster beneath it."""

    @property
    def url(self) -> str:
        """The REST address, while the services run."""
        ...

    def start(self) -> None:
        """Install and start the services; returns when they are ready."""
        ...

    def stop(self) -> None:
        """Stop them and remove their webhooks."""
        ...

    def cluster(self) -> contextlib.AbstractContextManager["Cluster"]:
        """The API of the cluster, while the services are stopped."""
        ...


class Cluster:
    """Plain verbs of an administrator."""

    def __init__(self, cluster: port.Cluster, runner: asyncio.Runner) -> None:
        self._cluster = cluster
        self._runner = runner

    def all(self, kind: kinds.Kind[Any]) -> list[Document]:
        listing = self._runner.run(self._cluster.list(kind))
        named = {"apiVersion": kind.api_version, "kind": kind.kind}
        return [{**msgspec.json.decode(raw), **named} for raw in listing.items]

    def objects(self) -> adoption.Objects:
        """All objects that concern Volcano."""
        return adoption.Objects(found for kind in CHECKED for found in self.all(kind))

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
        space = document["metadata"].get("namespace", "")
        body = msgspec.json.encode(document)
        made = self._runner.run(self._cluster.create(kind, space, body, dry_run=dry_run))
        found: Document = msgspec.json.decode(made)
        return found

    def create_with_status(self, document: Document) -> Document:
        """Create it, and write its status by the subresource."""
        made = self.create({name: it for name, it in document.items() if name != "status"})
        self.report(document, {"status": document["status"]})
        return made

    def report(self, document: Document, changes: Document) -> None:
        """Write the status of an existing object."""
        kind = kinds.BY_NAME[document["apiVersion"], document["kind"]]
        meta = document["metadata"]
        patch = self._cluster.patch(
            kind,
            meta.get("namespace", ""),
            meta["name"],
            msgspec.json.encode(changes),
            patch_type="merge",
            subresource="status",
        )
        self._runner.run(patch)

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.all(kinds.NODES))

    def wait_until_running(self, pod: Document) -> None:
        """Return when its kubelet runs the pod."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]

        def phase() -> str:
            raw = self._runner.run(self._cluster.get(kinds.PODS, namespace, name))
            return kinds.PODS.decode(raw).status.phase

        polling.until(phase, lambda found: found == "Running", WITHIN_S)


def leave(cluster: Cluster, *, kubelets_run: bool) -> dict[str, str]:
    """Write what Volcano leaves. Returns the uids of pods that must stay, by name.

    ``kubelets_run``: kubelets of other programs start pods meanwhile, so a pod's end is reported
    after its start.
    """
    _create_unless_there(cluster, _namespace(installation.NAMESPACE))
    for queue in installation.queues():
        cluster.create_with_status(queue)
    cluster.create(installation.priority_class())
    at, nodes, uids = now(), cluster.nodes(), {}
    for number, case in enumerate(installation.cases()):
        left = case.left
        uid = cluster.create(jobs.job(left))["metadata"]["uid"]
        if left.phase:
            document = jobs.job(left) | {"status": jobs.job_status(left, at)}
            cluster.report(document, {"status": document["status"]})
        if left.group:
            cluster.create(jobs.pod_group(left, uid, at))
        for other in jobs.other_objects(left, uid):
            cluster.create(other)
        for pod in jobs.pods(left, uid, nodes[number % len(nodes)]):
            name = pod["metadata"]["name"]
            made = cluster.create({key: it for key, it in pod.items() if key != "status"})
            if kubelets_run and "nodeName" in pod["spec"]:
                cluster.wait_until_running(pod)
            if not kubelets_run or pod["status"]["phase"] not in ("Running", "Pending"):
                cluster.report(pod, {"status": pod["status"]})
            if name in left.kept():
                uids[name] = made["metadata"]["uid"]
    for lease in installation.leases(now()):
        cluster.create(lease)
    return uids


def _namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _create_unless_there(cluster: Cluster, document: Document) -> None:
    with contextlib.suppress(errors.AlreadyExistsError):
        cluster.create(document)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class RealServices:
    """The four services on the real parts."""

    def __init__(self, state: Path, runner: asyncio.Runner) -> None:
        self._system = RealSystem(state, fake_nodes=NODES)
        self._runner = runner

    @property
    def url(self) -> str:
        return self._system.url

    def start_cluster(self) -> None:
        """The cluster alone, as another system uses it."""
        self._runner.run(self._system.parts.start())

    def start(self) -> None:
        self._runner.run(self._system.start_services())

    def stop(self) -> None:
        self._runner.run(self._system.stop_services())

    def end(self) -> None:
        """Stop everything."""
        self._runner.run(self._system.stop())

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Cluster]:
        settings = KubernetesSettings(kubeconfig=str(self._system.parts.kubeconfig))
        with entered(KubernetesCluster(settings), self._runner) as cluster:
            yield cluster


@contextlib.contextmanager
def entered(cluster: Any, runner: asyncio.Runner) -> Iterator[Cluster]:
    """An open connection."""
    runner.run(cluster.__aenter__())
    try:
        yield Cluster(cluster, runner)
    finally:
        runner.run(cluster.__aexit__(None, None, None))


@contextlib.contextmanager
def embedded_cluster(state: Path) -> Iterator[Cluster]:
    """The file of an embedded cluster that no process uses."""
    folder = state / "embedded"
    folder.mkdir(parents=True, exist_ok=True)
    with asyncio.Runner() as runner:
        opened = EmbeddedCluster(folder / "cluster.db")
        with entered(opened, runner) as cluster:
            nodes = simulated.node_documents(NODES, cpu="8", memory="32Gi")
            runner.run(simulated.create_nodes(opened, nodes))
            yield cluster

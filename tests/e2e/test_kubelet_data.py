"""Data sets in real containers: the data caches as their chart installs them, a DaemonSet on real
kubelets, whose copies pods mount as `hostPath` volumes.

The kubelet decides whether a container may start, the kernel whether it may write, and containerd
what it mounts. The cache runs as root without capabilities, as the chart says.
"""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aiokafka
import pytest

from stromboli.shared import decoding, topics
from stromboli.shared.jobspec import data_sets
from stromboli.shared.messages import data
from stromboli.testkit.parts import monitor_image
from stromboli.testkit.parts.kubelets import KubeletOptions
from stromboli.testkit.parts.kubernetes import Scheduler
from stromboli.testkit.parts.tools import KubeletTools, Tools
from tests.charts.support import helm
from tests.e2e.support import kubelet_system
from tests.e2e.support.data_origin import DataOrigin
from tests.e2e.support.kubelet_system import FOREVER, NODES, KubeletSystem, requests, shell
from tests.e2e.support.rest_user import Document

pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.usefixtures("kubelet_round"),
    pytest.mark.timeout(420),
]
NAMES = tuple(f"kubelet-{number}" for number in range(NODES))
NAMESPACE = "batch"
SHARED = "/shared"
"""Where the caches find a folder of the nodes."""
CACHE_SETTINGS = {"report_every_s": 1, "check_every_s": 1, "verify_every_s": 2}
CONFIGURATION = """
actions: enqueue, allocate, backfill
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins:
  - {name: overcommit, arguments: {overcommit-factor: 2.0}}
  - {name: nodeorder}
  - {name: data-locality}
"""
MOUNT = "/data/corpus"
READ = f"cd {MOUNT} && busybox find . -type f | busybox sort | busybox xargs busybox sha256sum"
FILES = {"train.bin": bytes(range(256)) * 4000, "meta/labels.txt": b"cat dog\n"}
SMALL = requests(cpu="200m")
BRIEF = {"terminationGracePeriodSeconds": 0}
UNPRIVILEGED = {"securityContext": {"runAsUser": 65534, "runAsGroup": 65534}}


class DataNodes:
    """The system with caches on all nodes."""

    def __init__(
        self,
        system: KubeletSystem,
        name: str,
        origin: DataOrigin,
        shared: Path,
        consumer: aiokafka.AIOKafkaConsumer,
    ) -> None:
        self.system, self.name, self.origin, self.shared = system, name, origin, shared
        self.user = system.user
        self._consumer = consumer
        self._reports: dict[str, data.DataObserved] = {}

    def daemon_set(self) -> Document:
        """Its status."""
        text = self.system.kubectl("get", "-n", NAMESPACE, "ds", self.name, "-o", "json")
        status: Document = json.loads(text)["status"]
        return status

    def cache_pod(self, node: str) -> Document:
        """The newest pod of a node's cache."""
        text = self.system.kubectl("get", "-n", NAMESPACE, "pods", "-o", "json")
        pods = [pod for pod in json.loads(text)["items"] if pod["spec"].get("nodeName") == node]
        found: Document = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return found

    def reports(self) -> dict[str, data.DataObserved]:
        """Node -> its newest record on `cluster.data`."""
        batches = self.system.run(self._consumer.getmany(timeout_ms=200))
        for records in batches.values():
            for record in records:
                node = record.key.decode()
                if record.value is not None and node in NAMES:
                    self._reports[node] = decoding.from_json(record.value, data.DataObserved)
        return self._reports

    def copies(self, key: str) -> dict[str, data.DataCopy]:
        """Node -> its reported copy."""
        return {
            node: copy
            for node, report in self.reports().items()
            for copy in report.copies
            if copy.key == key
        }

    def complete(self, key: str) -> dict[str, data.DataCopy]:
        """Node -> its complete copy."""
        return {node: it for node, it in self.copies(key).items() if it.state == "Complete"}

    def content(self, node: str, key: str) -> Path:
        """A copy, on the disk of a node."""
        root = str(self.system.node(node).data_folder / "data")
        return Path(data_sets.volume_path(root, key))

    def lay(self, name: str, files: Mapping[str, bytes]) -> str:
        """Write a data set to the shared folder; returns its URI."""
        for path, content in files.items():
            file = self.shared / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return f"file://{SHARED}/{name}"

    def log(self, pod: str) -> str:
        """The output of a pod's container."""
        return self.system.kubectl("logs", pod)

    def warnings(self, pod: str) -> str:
        """The Events of a pod that are warnings."""
        fields = f"--field-selector=involvedObject.name={pod},type=Warning"
        columns = "custom-columns=R:.reason,M:.message"
        return self.system.kubectl("get", "events", fields, "--no-headers", "-o", columns)

    def waiting(self, job: str) -> list[str]:
        """Why the containers of a job do not run."""
        states = [self.system.container(pod).get("state", {}) for pod in self.user.pods(job)]
        return [state["waiting"]["reason"] for state in states if "waiting" in state]


@pytest.fixture(scope="module")
def caches(
    real_tools: Tools, kubelet_tools: KubeletTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataNodes]:
    """Ready caches on all nodes."""
    state = tmp_path_factory.mktemp("kubelets")
    configuration = state / "scheduler.yaml"
    configuration.write_text(CONFIGURATION)
    shared = state / "shared"
    shared.mkdir()
    layer = state / "monitor.tar"
    monitor_image.write_layer(helm.ROOT, layer)
    chart = rendered(shared)
    daemon_set = helm.the_only(chart, "DaemonSet", "-data-cache")
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    options = KubeletOptions(images={container["image"]: (Path(kubelet_tools.mpi_image), layer)})
    environment = {
        "STROM_SCHEDULER_CONFIGURATION": str(configuration),
        **helm.agents_account(chart),
    }
    with contextlib.ExitStack() as stack:
        system = stack.enter_context(
            kubelet_system.running(
                state, real_tools, environment, options, ("daemonset-controller",)
            )
        )
        binder = Scheduler(kubelet_tools.scheduler, state / "kube-scheduler", system.server)
        stack.enter_context(system.part(binder))
        origin = DataOrigin(system.network.gateway)
        stack.enter_context(origin.serving())
        chart = rendered(shared, origin.url)
        daemon_set = helm.the_only(chart, "DaemonSet", "-data-cache")
        (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
        # The Service of the chart leads to the monitor's pods; here it is a process of the machine.
        (address,) = (it for it in container["env"] if it["name"] == "STROM_DATA_CACHE_MONITOR")
        address["value"] = f"http://{system.network.gateway}:{system.agents_port}"
        account = helm.the_only(chart, "ServiceAccount", "-agent")
        system.kubectl("create", "namespace", NAMESPACE)
        for document in (account, daemon_set):
            file = state / "object.json"
            file.write_text(json.dumps(document))
            system.kubectl("create", f"--filename={file}")
        consumer = system.run(following(system.kafka))
        stack.callback(lambda: system.run(consumer.stop()))
        data_nodes = DataNodes(system, daemon_set["metadata"]["name"], origin, shared, consumer)
        system.user.until(data_nodes.daemon_set, lambda it: it.get("numberReady") == NODES)
        system.user.until(data_nodes.reports, lambda found: len(found) == NODES)
        yield data_nodes


def rendered(shared: Path, *origins: str) -> list[Document]:
    """The objects of the monitor's chart with data caches that read these origins."""
    values: Document = {
        "enabled": True,
        "capacityGiB": 1,
        "allowedOrigins": [f"file://{SHARED}", *origins],
        "settings": CACHE_SETTINGS,
        "volumes": [{"name": "shared", "hostPath": {"path": str(shared)}}],
        "volumeMounts": [{"name": "shared", "mountPath": SHARED, "readOnly": True}],
    }
    registry = "global.image.registry=registry.example.com/stromboli"
    given = ("--set", registry, "--set-json", f"dataCache={json.dumps(values)}")
    return helm.rendered("monitor", *helm.BROKERS, *given)


async def following(bootstrap: str) -> aiokafka.AIOKafkaConsumer:
    """A consumer of `cluster.data` from its beginning."""
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    partition = aiokafka.TopicPartition(f"default.{topics.DATA.name}", 0)
    consumer.assign([partition])
    await consumer.seek_to_beginning(partition)
    return consumer


@pytest.fixture(autouse=True)
def only_jobs_of_the_test(caches: DataNodes) -> Iterator[None]:
    """Afterwards the nodes have all CPUs back."""
    yield
    for name in caches.user.names():
        caches.user.delete(name)
    left = functools.partial(caches.system.kubectl, "get", "pods", "--output=name")
    caches.user.until(left, lambda found: not found)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_of(files: Mapping[str, bytes]) -> str:
    lines = (f"{sha256(files[path])}  {path}\n" for path in sorted(files))
    return f"sha256:{sha256(''.join(lines).encode())}"


def hashes(files: Mapping[str, bytes]) -> str:
    """What READ prints."""
    return "".join(f"{sha256(files[path])}  ./{path}\n" for path in sorted(files))


def job(name: str, script: str, uri: str, digest: str = "", **rest: Any) -> Document:
    """A job whose pods mount a data set."""
    given = {"name": "corpus", "uri": uri, "mountPath": MOUNT, **rest.pop("data", {})}
    given |= {"digest": digest} if digest else {}
    pod = {**BRIEF, **rest.pop("pod", {})}
    fields = {"container": SMALL, "pod": pod, "dataSets": [given], **rest}
    return kubelet_system.job(name, shell(script), **fields)


def test_containers_wait_until_their_data_is_complete_and_read_it_on_both_nodes(
    caches: DataNodes,
) -> None:
    """A gang with a pod on each node, which do not run as root, as the cache does; while the origin
    has sent half of the bytes, the kubelets create no container."""
    files = {"images.bin": os.urandom(300_000)}
    digest, uri = digest_of(files), caches.origin.uri("images.bin", files["images.bin"])
    key = data_sets.content_key(uri, digest)
    whole = requests(cpu="600m")
    script = f"{READ}; busybox touch {MOUNT}/new 2>&1; true"
    with caches.origin.holding():
        caches.user.submit(
            job("gang", script, uri, digest, pods=NODES, container=whole, pod=UNPRIVILEGED)
        )
        caches.user.until(
            functools.partial(caches.copies, key),
            lambda found: (
                {node for node, it in found.items() if it.state == "Fetching"} == {*NAMES}
            ),
        )
        caches.user.until(
            functools.partial(caches.waiting, "gang"),
            lambda found: found == ["ContainerCreating"] * NODES,
        )
        for pod in caches.user.pods("gang"):
            warnings = caches.user.until(
                functools.partial(caches.warnings, pod["metadata"]["name"]), bool
            )
            assert "FailedMount" in warnings
            assert f"{key}/content is not a directory" in warnings
    caches.user.comes_to("gang", "Completed")
    for index in range(NODES):
        read_only = f"touch: {MOUNT}/new: Read-only file system\n"
        assert caches.log(f"gang-work-{index}") == hashes(files) + read_only
    found = caches.user.until(functools.partial(caches.complete, key), lambda it: len(it) == NODES)
    for copy in found.values():
        assert (copy.digest, copy.bytes, copy.fetched_bytes) == (digest, 300_000, 300_000)
    assert caches.origin.reads["images.bin"] == NODES


def test_data_of_a_pending_gang_is_on_its_node_before_its_pod_starts(caches: DataNodes) -> None:
    files = {"next.bin": os.urandom(200_000)}
    digest, uri = digest_of(files), caches.origin.uri("next.bin", files["next.bin"])
    key = data_sets.content_key(uri, digest)
    most = requests(cpu="600m")
    busy = kubelet_system.job("busy", shell(FOREVER), pods=NODES, container=most, pod=BRIEF)
    caches.user.submit(busy)
    caches.user.comes_to("busy", "Running")
    required = {"locality": "Required"}
    caches.user.submit(job("next", READ, uri, digest, container=most, data=required))
    found = caches.user.until(functools.partial(caches.complete, key), bool)
    pods = caches.user.pods("next")
    assert not any("nodeName" in pod["spec"] for pod in pods)
    caches.user.delete("busy")
    caches.user.comes_to("next", "Completed")
    (pod,) = caches.user.pods("next")
    assert pod["spec"]["nodeName"] in found
    assert caches.log("next-work-0") == hashes(files)
    assert "FailedMount" not in caches.warnings("next-work-0")


def test_a_gang_that_is_created_on_its_nodes_has_its_data(caches: DataNodes) -> None:
    """Without a Binding, the caches know from the decision what they have to fetch."""
    uri, digest = caches.lay("folder", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    before = caches.system.bindings()
    half = requests(cpu="400m")
    caches.user.submit(job("created-bound", READ, uri, digest, pods=3, container=half))
    caches.user.comes_to("created-bound", "Completed")
    assert caches.system.bindings() == before
    for index in range(3):
        assert caches.log(f"created-bound-work-{index}") == hashes(FILES)
    found = caches.user.until(functools.partial(caches.complete, key), lambda it: len(it) == NODES)
    assert {copy.digest for copy in found.values()} == {digest}


def test_a_copy_with_changed_bytes_is_fetched_again_for_the_pods_that_need_it(
    caches: DataNodes,
) -> None:
    """Size and time of the file are as before: the digest alone tells."""
    uri, digest = caches.lay("damaged", FILES), digest_of(FILES)
    key = data_sets.content_key(uri, digest)
    caches.user.submit(job("uses", FOREVER, uri, digest, pod=BRIEF))
    caches.user.comes_to("uses", "Running")
    (pod,) = caches.user.pods("uses")
    file = caches.content(pod["spec"]["nodeName"], key) / "train.bin"
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    with file.open("r+b") as opened:
        opened.write(b"?")
    os.utime(file, ns=times)
    caches.user.until(lambda: readable(file), lambda found: found == FILES["train.bin"])
    caches.user.submit(job("reads", READ, uri, digest, data={"sharing": "Share"}))
    caches.user.comes_to("reads", "Completed")
    assert caches.log("reads-work-0") == hashes(FILES)


def readable(file: Path) -> bytes:
    """The content of a file; nothing while it does not exist."""
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_a_container_that_restarts_while_its_data_is_fetched_again_waits_for_it(
    caches: DataNodes,
) -> None:
    """The kubelet checks volumes once for a pod, and containerd creates missing directories: the
    container must not start with an empty one, and no new pod must."""
    files = {"again.bin": os.urandom(100_000)}
    digest, uri = digest_of(files), caches.origin.uri("again.bin", files["again.bin"])
    key = data_sets.content_key(uri, digest)
    look = f"while [ -e {MOUNT}/again.bin ]; do sleep 0.1; done; exit 1"
    script = f"cat {MOUNT}/again.bin >/dev/null || {{ echo no data; {FOREVER}; }}; {look}"
    restarting = {"restartPolicy": "OnFailure", **BRIEF}
    caches.user.submit(job("restarts", script, uri, digest, pod=restarting))
    caches.user.comes_to("restarts", "Running")
    (pod,) = caches.user.pods("restarts")
    file = caches.content(pod["spec"]["nodeName"], key) / "again.bin"
    with caches.origin.holding():
        file.chmod(0o644)
        file.write_bytes(b"?")
        caches.user.until(
            functools.partial(caches.waiting, "restarts"),
            lambda found: found == ["CreateContainerError"],
        )
        caches.user.submit(job("starts", READ, uri, digest, data={"sharing": "Share"}))
        caches.user.until(functools.partial(caches.waiting, "starts"), bool)
    caches.user.comes_to("starts", "Completed")
    assert caches.log("starts-work-0") == hashes(files)
    running = caches.user.until(functools.partial(caches.system.running, "restarts"), bool)
    assert caches.system.container(running[0])["restartCount"] >= 1
    assert caches.system.kubectl("exec", "restarts-work-0", "--", "sh", "-c", READ) == hashes(files)


def test_the_cache_of_a_new_pod_has_the_copies_and_knows_which_are_in_use(
    caches: DataNodes,
) -> None:
    """As in an update of the DaemonSet: jobs run on, and the origin is not read again."""
    files = {"kept.bin": os.urandom(100_000)}
    digest, uri = digest_of(files), caches.origin.uri("kept.bin", files["kept.bin"])
    key = data_sets.content_key(uri, digest)
    look = f"while [ -e {MOUNT}/kept.bin ]; do sleep 0.1; done; exit 1"
    caches.user.submit(job("keeps", look, uri, digest))
    caches.user.comes_to("keeps", "Running")
    (pod,) = caches.user.pods("keeps")
    node = pod["spec"]["nodeName"]
    caches.user.until(functools.partial(caches.complete, key), bool)
    folder = caches.content(node, key).stat()
    old = caches.cache_pod(node)["metadata"]
    caches.system.kubectl("delete", "pod", "-n", NAMESPACE, old["name"])
    new = caches.user.until(
        functools.partial(caches.cache_pod, node),
        lambda it: it["metadata"]["uid"] != old["uid"] and is_ready(it),
    )
    copy = caches.copies(key)[node]  # its own report: else it would not be ready
    assert (copy.state, copy.digest, copy.in_use) == ("Complete", digest, True)
    assert caches.content(node, key).stat().st_ino == folder.st_ino
    assert key not in caches.system.kubectl("logs", "-n", NAMESPACE, new["metadata"]["name"])
    assert caches.origin.reads["kept.bin"] == 1
    assert caches.user.phase("keeps") == "Running"


def is_ready(pod: Document) -> bool:
    """Whether the container of a pod is ready."""
    return bool(pod["status"].get("containerStatuses", [{}])[0].get("ready"))


def test_a_vanished_copy_is_fetched_again_before_the_next_pod_starts(
    caches: DataNodes, tmp_path: Path
) -> None:
    files = {"gone.bin": os.urandom(100_000)}
    digest, uri = digest_of(files), caches.origin.uri("gone.bin", files["gone.bin"])
    key = data_sets.content_key(uri, digest)
    caches.user.submit(job("first", READ, uri, digest))
    caches.user.comes_to("first", "Completed")
    found = caches.user.until(
        functools.partial(caches.complete, key),
        lambda it: bool(it) and not any(copy.in_use for copy in it.values()),
    )
    (node,) = found
    caches.content(node, key).parent.rename(tmp_path / "gone")  # at once: the agent writes there
    caches.user.until(functools.partial(caches.copies, key), lambda found: not found)
    caches.user.submit(job("second", READ, uri, digest))
    caches.user.comes_to("second", "Completed")
    assert caches.log("second-work-0") == hashes(files)
    assert caches.origin.reads["gone.bin"] == 2

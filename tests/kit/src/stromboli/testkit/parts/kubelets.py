"""Real kubelets with containerd on this machine: nodes that run pods in real containers.

Each node is one process tree in mount and PID namespaces of its own, where /run, /var/lib and
/var/log are private: neither mounts nor processes outlive the node, however it ends, and several
nodes share a machine. Three changes are visible outside, and ``KubeletNodes`` reverts them: the
bridge that connects the pods, the parent cgroup, and the kernel settings that a kubelet requires. A
record below /run allows a later run to revert the changes of a killed one.

Needs root, Linux, and what ``make kubelet-tools`` finds or installs. Tested with cgroup v1.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar

import trustme

from stromboli.testkit.parts import cluster_dns, container_images, pod_network
from stromboli.testkit.parts.forwarder import Forwarder
from stromboli.testkit.parts.kubernetes import (
    API_SERVICE_ADDRESS,
    API_SERVICE_PORT,
    CLIENT_ERRORS,
    ApiServer,
)
from stromboli.testkit.parts.part import Part
from stromboli.testkit.parts.tools import KubeletTools

SYSCTLS = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory")
"""Kernel settings that a kubelet changes at its start."""
PROC_SYS = Path("/proc/sys")
CGROUPS = Path("/sys/fs/cgroup")
RECORDS = Path("/run")
NUMA_NODES = Path("/sys/devices/system/node")
KUBELET_FOLDER = "/var/lib/kubelet"
"""The kubelet's folder in the namespaces of its node."""
POLL_S = 0.05
NODE_CPUS = 1
LEASE_S = 4
"""Lease duration in seconds. A kubelet renews its lease four times within it, so that a lost node
is detected within seconds."""
REMOVED_WITHIN_S = 10.0


@dataclasses.dataclass(frozen=True)
class KubeletOptions:
    """``images``: name -> tar of its root file system, or several of which each adds files, beside
    the image of busybox; ``archives``: further images, as ``docker save`` writes them;
    ``settings``: further fields of the kubelet's configuration; ``numa_nodes``: a folder that the
    kubelet sees in place of ``/sys/devices/system/node``; None: the machine's own; ``link_rate``:
    of a link between the nodes, as ``tc`` writes it (``20mbit``), unlimited by default."""

    images: Mapping[str, Path | Sequence[Path]] = dataclasses.field(default_factory=dict)
    archives: Sequence[Path] = ()
    settings: Mapping[str, object] = dataclasses.field(default_factory=dict)
    numa_nodes: Path | None = None
    link_rate: str = ""


class KubeletNode(Part):
    """One containerd and one kubelet, registered with the API server as
    ``kubelet-`` and its number.

    ``stop`` and ``kill`` end every container with it, as a power failure of the machine does.
    """

    name: ClassVar[str] = "kubelet"
    port_count: ClassVar[int] = 2
    ready_timeout_s: ClassVar[float] = 120.0

    def __init__(
        self,
        tools: KubeletTools,
        state: Path,
        server: ApiServer,
        network: pod_network.Network,
        number: int,
        client_ca: Path,
        images: Path,
        options: KubeletOptions,
    ) -> None:
        super().__init__(state)
        self.node = f"kubelet-{number}"
        self._number = number
        self._images = images
        self._options = options
        self.cgroup = f"/{network.name}/{self.node}"
        self._tools = tools
        self._server = server
        self._network = network
        self._client_ca = client_ca

    def command(self) -> list[str]:
        """The node's script, as the first process of its namespaces."""
        namespaces = ["--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
        return [self._tools.unshare, *namespaces, "/bin/sh", str(self.state / "node.sh")]

    async def prepare(self) -> None:
        """Write the script and the configuration of containerd, CNI and the kubelet."""
        layers = (f"overlay/{name}" for name in ("lower", "upper", "work", "merged"))
        for folder in ("kubelet", "containerd", "cni", "cdi", "stromboli", *layers):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        (self.state / "resolv.conf").touch()
        (self.state / "cni" / "10-bridge.conf").write_text(
            json.dumps(self._network.cni(self._number))
        )
        (self.state / "containerd.in").write_text(self._containerd())
        (self.folder / "config.yaml").write_text(json.dumps(self._kubelet(), indent=1))
        self._away.unlink(missing_ok=True)
        (self.state / "node.sh").write_text(self._script())
        for hierarchy in cgroup_hierarchies():
            (hierarchy / self.cgroup[1:]).mkdir(parents=True, exist_ok=True)

    @property
    def folder(self) -> Path:
        """The kubelet's folder, which is mounted as KUBELET_FOLDER in its namespace."""
        return self.state / "kubelet"

    @property
    def cdi_file(self) -> Path:
        """The file that tells containerd what containers see of a device (CDI)."""
        return self.state / "cdi" / "devices.json"

    @property
    def data_folder(self) -> Path:
        """The folder that is mounted as /var/lib/stromboli in its namespace."""
        return self.state / "stromboli"

    @property
    def _away(self) -> Path:
        return self.state / "kubelet-is-away"

    async def kill_kubelet(self) -> None:
        """Kill only the kubelet with SIGKILL; its containers continue, and it is not restarted."""
        self._away.touch()
        while (pid := self._kubelet_pid()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(POLL_S)

    async def restart_kubelet(self) -> None:
        """Start the kubelet again; returns when its API has created a new socket."""
        socket = self.folder / "pod-resources" / "kubelet.sock"
        before = socket.stat().st_mtime_ns
        self._away.unlink()
        async with asyncio.timeout(self.ready_timeout_s):
            while not socket.exists() or socket.stat().st_mtime_ns == before:  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    def _kubelet_pid(self) -> int | None:
        """Pid of the kubelet with this node's configuration; None if it is not running."""
        configuration = f"--config={self.folder / 'config.yaml'}".encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if words[0] == self._tools.kubelet.encode() and configuration in words:
                    return int(path.parent.name)
        return None

    async def is_ready(self) -> bool:
        """Whether the node reports Ready."""
        try:
            async with self._server.client() as api:
                node = await api.get(f"/api/v1/nodes/{self.node}")
        except CLIENT_ERRORS:
            return False
        conditions = node.get("status", {}).get("conditions", ())
        ready = {each["type"]: each["status"] for each in conditions}.get("Ready") == "True"
        return ready and not node["spec"].get("taints")

    def _script(self) -> str:
        quoted = (str(self.state), str(Path(self._tools.containerd).parent))
        state, programs = map(shlex.quote, quoted)
        images = shlex.join(map(str, (self._images, *self._options.archives)))
        away = shlex.quote(str(self._away))
        kubelet = [
            self._tools.kubelet,
            f"--config={self.folder / 'config.yaml'}",
            f"--kubeconfig={self._server.kubeconfig()}",
            f"--hostname-override={self.node}",
            f"--node-ip={self._network.gateway}",
        ]
        numa = shlex.quote(str(self._options.numa_nodes or NUMA_NODES))
        return f"""set -eu
PATH={programs}:$PATH  # containerd finds its shim there
mount --bind {numa} {NUMA_NODES}
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /var/log
mount -t proc proc /proc
mkdir -p /run/containerd {KUBELET_FOLDER} /var/lib/stromboli
cd {state}/overlay
snapshotter=native
if mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged 2>&1; then
  umount merged
  snapshotter=overlayfs
fi
sed "s/SNAPSHOTTER/$snapshotter/" {state}/containerd.in >{state}/containerd.toml
mount --bind {state}/kubelet {KUBELET_FOLDER}
mount --bind {state}/stromboli /var/lib/stromboli
containerd --config {state}/containerd.toml >>{state}/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
for images in {images}; do
  ctr --namespace k8s.io images import --snapshotter $snapshotter $images
done
trap 'kill -TERM $kubelet && wait $kubelet; exit' TERM
while true; do
  {shlex.join(kubelet)} &
  kubelet=$!
  wait $kubelet || test -e {away}
  while test -e {away}; do sleep 0.1; done
done
"""

    def _containerd(self) -> str:
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        return f"""version = 2
root = "{self.state / "containerd"}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
{cri}]
  sandbox_image = "{container_images.PAUSE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_tcp_service = true
  enable_selinux = false
  enable_cdi = true
  cdi_spec_dirs = ["{self.cdi_file.parent}"]
{cri}.containerd]
  snapshotter = "SNAPSHOTTER"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
  BinaryName = "{self._tools.runc}"
  SystemdCgroup = false
{cri}.cni]
  bin_dir = "{self._tools.cni}"
  conf_dir = "{self.state / "cni"}"
"""

    def _kubelet(self) -> dict[str, object]:
        unlimited = (
            "memory.available",
            "nodefs.available",
            "nodefs.inodesFree",
            "imagefs.available",
        )
        reserved = max(0, (os.cpu_count() or 1) - NODE_CPUS)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._network.gateway,
            "port": self.ports[0],
            "healthzPort": self.ports[1],
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(self._client_ca)},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "makeIPTablesUtilChains": False,
            "resolvConf": str(self.state / "resolv.conf"),
            "clusterDNS": [self._network.gateway],
            "clusterDomain": cluster_dns.DOMAIN,
            "failSwapOn": False,
            "nodeLeaseDurationSeconds": LEASE_S,
            "oomScoreAdj": 0,
            "enforceNodeAllocatable": ["none"],
            "systemReserved": {"cpu": str(reserved)},
            # The disk of a development machine may be nearly full, which must not evict pods.
            "evictionHard": dict.fromkeys(unlimited, "0%"),
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            **self._options.settings,
        }


def cgroup_hierarchies() -> list[Path]:
    """The folders in which cgroups are created: one with v2, one for each controller with v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir() and path.name != "unified"]


class KubeletNodes:
    """Nodes ``kubelet-0``, ``kubelet-1`` and so on of an API server: started on entry, removed on
    exit."""

    def __init__(
        self,
        tools: KubeletTools,
        state: Path,
        server: ApiServer,
        authority: trustme.CA,
        count: int,
        options: KubeletOptions | None = None,
    ) -> None:
        """``authority``: the CA that has signed the API server's client certificate. Starts
        nothing."""
        self._options = options or KubeletOptions()
        state = state.resolve()  # a kubelet takes paths as relative to its configuration file
        self._record = RECORDS / f"stromboli-kubelets-{os.getpid()}.json"
        self._network = pod_network.Network(
            f"strom{os.getpid()}",
            pod_network.free_third_byte(),
            state / "addresses",
            count,
            self._options.link_rate,
        )
        self._authority = authority
        self._client_ca = state / "client-ca.pem"
        self._state = state
        self._tools = tools
        self._archive = state / "images.tar"
        self.nodes = [
            KubeletNode(
                tools,
                state / f"kubelet-{number}",
                server,
                self._network,
                number,
                self._client_ca,
                self._archive,
                self._options,
            )
            for number in range(count)
        ]
        self._served: tuple[Part, ...] = (
            cluster_dns.ClusterDns(state / "dns", self._network.gateway, server),
            Forwarder(
                state / "api-server-address",
                self._network.name,
                API_SERVICE_ADDRESS,
                API_SERVICE_PORT,
                lambda: server.ports[0],
            ),
        )

    @property
    def network(self) -> pod_network.Network:
        """The network of the pods."""
        return self._network

    async def start(self) -> None:
        """Prepare the machine, then start all nodes concurrently."""
        await asyncio.to_thread(self._record_machine)
        try:
            await asyncio.to_thread(self._network.add)
            await asyncio.to_thread(
                container_images.write_archive,
                Path(self._tools.busybox),
                self._archive,
                self._options.images,
            )
            async with asyncio.TaskGroup() as group:
                for part in (*self._served, *self.nodes):
                    group.create_task(part.start())
        except BaseException:
            await self.stop()
            raise

    def _record_machine(self) -> None:
        undo_ended()
        self._state.mkdir(parents=True, exist_ok=True)
        self._client_ca.write_bytes(self._authority.cert_pem.bytes())
        values = {name: (PROC_SYS / name).read_text() for name in SYSCTLS}
        document = {
            "network": self._network.name,
            "interfaces": self._network.interfaces,
            "settings": values,
        }
        self._record.write_text(json.dumps(document))

    async def stop(self) -> None:
        """Stop all nodes with their containers, and revert the changes of the machine. Logs remain;
        images and layers of containers, gigabytes for each node, are removed."""
        await asyncio.gather(*(part.stop() for part in (*self._served, *self.nodes)))
        await asyncio.to_thread(self._remove_images)
        if self._record.exists():
            await asyncio.to_thread(undo, self._record)

    def _remove_images(self) -> None:
        # Mounts below these folders ended with the mount namespaces of the nodes.
        self._archive.unlink(missing_ok=True)
        for node in self.nodes:
            shutil.rmtree(node.state / "containerd", ignore_errors=True)

    async def __aenter__(self) -> KubeletNodes:
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


def undo_ended() -> None:
    """Revert the changes of earlier runs that ended without doing so."""
    for record in RECORDS.glob("stromboli-kubelets-*.json"):
        if not Path("/proc", record.stem.rpartition("-")[2]).exists():
            undo(record)


def undo(record: Path) -> None:
    """Remove the bridge and the cgroups of a run that has ended, and restore kernel settings."""
    values = json.loads(record.read_text())
    for interface in values.get("interfaces", [values["network"]]):
        with contextlib.suppress(subprocess.CalledProcessError):
            pod_network.run("ip", "link", "delete", interface)
    # In addition to the controllers of v1, runc uses the v2 hierarchy if there is one.
    for hierarchy in (CGROUPS, *(path for path in CGROUPS.iterdir() if path.is_dir())):
        remove_cgroup(hierarchy / values["network"])
    for name, value in values["settings"].items():
        (PROC_SYS / name).write_text(value)
    record.unlink()


def remove_cgroup(folder: Path) -> None:
    """Remove a cgroup and all cgroups below it. Raises OSError if it still has processes."""
    for below, _, _ in os.walk(folder, topdown=False):
        deadline = time.monotonic() + REMOVED_WITHIN_S
        while True:
            try:
                os.rmdir(below)
                break
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)  # the kernel reaps processes that were killed

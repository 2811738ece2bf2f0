"""Reads what pods use from their cgroups, version 1 or 2.

The kubelet makes a cgroup for each pod, named by its uid, in which the kernel adds up all
containers, also those that have ended: a restarted container does not reset the counter of CPU
time. Reading it needs no rights beyond the mounted ``/sys`` and costs some file reads. The
kubelet's Summary API has the same values, as of up to 10 s ago, and would need a token for the API
server with a right (``nodes/stats``) on every node.

Sources: Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go (names of cgroups); Linux,
Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/.
"""

import os
import re
from pathlib import Path

from stromboli.monitor.core import pod_meter

_UID = re.compile(
    r"(?:^|-)pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})(?:\.slice)?$"
)
"""``podUID`` (cgroupfs), ``kubepods-burstable-podUID.slice`` with underscores (systemd)."""
_QOS = re.compile(r"(?:^|-)(besteffort|burstable)(?:\.slice)?$")
_ROOT = re.compile(r"(?:^|-)kubepods(?:\.slice)?$")
CPU_V1, MEMORY_V1 = ("cpu,cpuacct", "cpuacct"), "memory"
DEEPEST, SEARCH_EVERY = 3, 60
"""The maximum depth of the search for the root of pods, and the number of calls between two
searches."""
LARGEST_BYTES = 64 * 1024
"""Larger than any of these files."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class PodCgroups:
    """The cgroups of the pods of a node. ``root``: the mounted ``/sys/fs/cgroup``."""

    def __init__(self, root: Path, boot_id: Path = BOOT_ID) -> None:
        self._is_v2 = (root / "cgroup.controllers").exists()
        of_v1 = (root / name for name in CPU_V1)
        self._cpu = root if self._is_v2 else next((it for it in of_v1 if it.is_dir()), root)
        self._memory = root if self._is_v2 else root / MEMORY_V1
        self._boot = _text(boot_id).strip()[:36]
        self._folders: dict[str, str] = {}
        self._uids: dict[str, str] = {}
        """Name of a folder -> uid of its pod; empty if it is not a pod's folder."""
        self._below: list[str] = []
        self._searches = 0

    def find(self) -> list[str]:
        """The uids of all pods with a cgroup. Costs a listing of each QoS class."""
        folders: dict[str, str] = {}
        names: dict[str, str] = {}
        for pods in self._pods_folders():
            for name in _names(self._cpu / pods):
                uid = self._uids.get(name)
                names[name] = uid = _uid(name) if uid is None else uid
                if uid:
                    folders[uid] = f"{pods}/{name}"
        self._folders, self._uids = folders, names
        return list(folders)

    def read(self, uid: str) -> pod_meter.Reading | None:
        """What a pod uses; None if its cgroup is gone or cannot be read."""
        folder = self._folders.get(uid)
        if folder is None:
            return None
        try:
            number = os.stat(f"{self._cpu}/{folder}").st_ino
            cpu_ms = self._cpu_ms(f"{self._cpu}/{folder}")
            memory = self._working_set(f"{self._memory}/{folder}")
        except (OSError, ValueError):
            return None
        return pod_meter.Reading(f"{self._boot}/{number}", cpu_ms, memory)

    def _cpu_ms(self, folder: str) -> int:
        if self._is_v2:
            return _field(f"{folder}/cpu.stat", b"usage_usec") // 1000
        return int(_content(f"{folder}/cpuacct.usage")) // 1_000_000

    def _working_set(self, folder: str) -> int:
        """The memory without inactive files, as the kubelet computes it."""
        current = "memory.current" if self._is_v2 else "memory.usage_in_bytes"
        inactive = b"inactive_file" if self._is_v2 else b"total_inactive_file"
        in_use = int(_content(f"{folder}/{current}"))
        return max(0, in_use - _field(f"{folder}/memory.stat", inactive))

    def _pods_folders(self) -> list[str]:
        """The folders with pods: the roots of pods and their QoS classes."""
        roots = self._roots()
        classes = [
            f"{root}/{name}"
            for root in roots
            for name in _names(self._cpu / root)
            if _QOS.search(name)
        ]
        return [*roots, *classes]

    def _roots(self) -> list[str]:
        """The roots of pods, at the top or below the kubelet's ``cgroupRoot``. The latter is
        searched rarely, because it costs a listing of all services of the machine."""
        if roots := [name for name in _names(self._cpu) if _ROOT.search(name)]:
            return roots
        if self._searches % SEARCH_EVERY == 0:
            level = [""]
            self._below = []
            for _ in range(DEEPEST):
                level = [f"{it}{name}/" for it in level for name in _names(self._cpu / it)]
                self._below = [it[:-1] for it in level if _ROOT.search(it[:-1].rpartition("/")[2])]
                if self._below:
                    break
        self._searches += 1
        return self._below


def _uid(name: str) -> str:
    """The uid of the pod whose cgroup has this name; empty if it is not of a pod."""
    matched = _UID.search(name)
    return matched[1].replace("_", "-") if matched else ""


def _names(folder: Path) -> list[str]:
    """The folders in a folder; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [it.name for it in entries if it.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _content(file: str) -> bytes:
    """The content of a file, which the kernel writes when it is read: one read suffices."""
    opened = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(opened, LARGEST_BYTES)
    finally:
        os.close(opened)


def _field(file: str, name: bytes) -> int:
    """The value of a line ``name value``. Raises OSError, ValueError."""
    _, separator, rest = (b"\n" + _content(file)).partition(b"\n" + name + b" ")
    if not separator:
        raise ValueError(f"{file} has no {name.decode()}")
    return int(rest.partition(b"\n")[0])


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""

"""Reads the state of a kubelet: its settings, state files, and its API."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stromboli.monitor.core.hardware import kubelet
from stromboli.shared import errors
from stromboli.shared.messages import node_topology

SOCKET = "pod-resources/kubelet.sock"
CONFIG = "config.yaml"
CPU_STATE, MEMORY_STATE = "cpu_manager_state", "memory_manager_state"
DEVICES = "device-plugins/kubelet_internal_checkpoint"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Stamp = tuple[tuple[int, int] | None, ...]


class _Answer(NamedTuple):
    """The response of the kubelet's API; None: no response."""

    allocations: tuple[node_topology.ExclusiveAllocation, ...] | None = None
    allocatable: kubelet.Allocatable | None = None


class Kubelet:
    """The kubelet that uses this directory; it may start, stop and restart at any time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._api: Any = None
        self._socket: tuple[int, int] | None = None
        self._answer = _Answer()
        self._answered_by: tuple[int, int] | None = None
        """The socket from which ``_answer`` was read, by inode: a restarted kubelet has another
        one."""
        self._config: tuple[tuple[int, int] | None, Any, str] = (None, None, "")

    def stamp(self) -> Stamp:
        """A value that changes when the kubelet allocates resources: times and inodes of its state
        files. Costs microseconds.
        """
        return tuple(_stamp(self._folder / name) for name in (CPU_STATE, MEMORY_STATE, DEVICES))

    def read(self) -> kubelet.KubeletReadings:
        """All current readings. Waits a few seconds at most for its API."""
        failed: dict[str, str] = {}
        if not self._folder.is_dir():
            return kubelet.KubeletReadings(
                failed={"the kubelet": f"{self._folder} is not a directory"}
            )
        answer = self._query(failed)
        config = self._settings(failed)
        return kubelet.KubeletReadings(
            config=config,
            # Without the API this file alone names the holders of CPUs; the chart mounts it only
            # where `stateFiles` is set.
            cpu_state=self._state(CPU_STATE, failed, optional=answer.allocations is not None),
            memory_state=self._state(MEMORY_STATE, failed, optional=True),
            exclusive_allocations=answer.allocations,
            allocatable=answer.allocatable,
            failed=failed,
        )

    def _query(self, failed: dict[str, str]) -> _Answer:
        """Allocations and allocatable resources. While the kubelet does not respond, or has
        restarted and not read its pods yet, the last response: its containers continue, and it
        allocates nothing.

        A kubelet lists no pods after its start until the API server has sent all of them. The agent
        is a pod itself, so the list is never empty afterwards.
        """
        socket = _stamp(self._folder / SOCKET)
        if socket is None:
            failed["the kubelet's PodResources API"] = f"there is no {self._folder / SOCKET}"
            return self._answer
        if self._api is None or socket != self._socket:
            from stromboli.monitor.agent import (
                podresources,
            )  # takes 15 MiB, only where there is a kubelet

            if self._api is not None:
                self._api.close()  # a restarted kubelet listens on a new socket of the same name
            # A socket address has at most 107 bytes: a longer path is shortened by a link.
            self._api = podresources.Kubelet(os.path.realpath(self._folder / SOCKET))
            self._socket = socket
        try:
            exclusive_allocations = self._api.exclusive_allocations()
        except errors.TransientError as error:
            failed["the kubelet's PodResources API"] = error.reason
            return self._answer
        if exclusive_allocations is None and self._answered_by not in (None, socket):
            failed["the kubelet's PodResources API"] = "it has restarted and lists no pods yet"
            return self._answer
        allocatable = self._answer.allocatable
        try:
            allocatable = self._api.allocatable()
        except errors.TransientError as error:
            failed["the kubelet's allocatable resources"] = error.reason
        self._answer = _Answer(exclusive_allocations or (), allocatable)
        self._answered_by = socket
        return self._answer

    def _settings(self, failed: dict[str, str]) -> Any:
        """The settings, parsed again only when the file has changed: parsing YAML is slow."""
        path = self._folder / CONFIG
        stamp = _stamp(path)
        if stamp is None or stamp != self._config[0]:
            try:
                self._config = (stamp, yaml.load(path.read_bytes(), _LOADER), "")
            except (OSError, ValueError, yaml.YAMLError) as error:
                self._config = (stamp, None, " ".join(str(error).split()))
        if self._config[2]:
            failed["the kubelet's settings"] = self._config[2]
        return self._config[1]

    def _state(self, name: str, failed: dict[str, str], *, optional: bool = False) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            if not optional:
                failed[name] = f"there is no {self._folder / name}"
        except OSError as error:
            failed[name] = error.strerror or str(error)
        return None


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        file_stat = os.stat(path)
    except OSError:
        return None
    return file_stat.st_mtime_ns, file_stat.st_ino

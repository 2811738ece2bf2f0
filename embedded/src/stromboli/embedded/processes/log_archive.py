"""The output of deleted pods, so that the logs of earlier attempts can be read.

::

    <namespace>_<name>_<uid>/logs/<container>/<run>/

A kubelet deletes the logs of a pod with the pod. A restart of a job deletes its pods, and the
reason for the restart is in their logs. ``MOST_PODS`` and ``MOST_BYTES`` are checked when a pod is
added; the oldest pods are removed first.
"""

import contextlib
import shutil
from pathlib import Path

from stromboli.embedded.processes.disk import PodFolder

MOST_PODS = 1000
"""Maximum deleted pods whose output is kept; many small pods would never reach the limit of
bytes."""
MOST_BYTES = 256 * 1024 * 1024
"""Maximum bytes of kept output of all deleted pods together."""


class LogArchive:
    """Output of deleted pods in one folder. Its methods read and write files: call them in a
    thread."""

    def __init__(
        self, path: Path, most_pods: int = MOST_PODS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._path = path
        self._most_pods = most_pods
        self._most_bytes = most_bytes

    def archive(self, pod: PodFolder, namespace: str, name: str, uid: str) -> None:
        """Move the output of a pod to the archive. A pod without output leaves nothing."""
        logs = pod.path / "logs"
        if not logs.is_dir():
            return
        target = self._path / _folder(namespace, name, uid)
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # already moved before a crash
            logs.rename(target / "logs")
        self._prune()

    def find(self, namespace: str, name: str, uid: str) -> PodFolder | None:
        """The folder of a deleted pod; None if its output is not kept."""
        path = self._path / _folder(namespace, name, uid)
        return PodFolder(path) if path.is_dir() else None

    def _prune(self) -> None:
        newest = sorted(self._path.iterdir(), key=lambda it: it.stat().st_mtime_ns, reverse=True)
        left = self._most_bytes
        for place, folder in enumerate(newest):
            left -= sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            if place >= self._most_pods or left < 0:
                shutil.rmtree(folder, ignore_errors=True)


def _folder(namespace: str, name: str, uid: str) -> str:
    """A folder name that no other pod has: names of Kubernetes contain neither ``_`` nor ``/``.

    Raises ValueError for parts that are not such names.
    """
    parts = (namespace, name, uid)
    if any("/" in part or "_" in part or part in ("", ".", "..") for part in parts):
        raise ValueError(f"{parts} are not the names of a pod")
    return "_".join(parts)

"""A pod's folder on the node's disk: volumes, hosts file, output of its containers.

::

    <pod uid>/volumes/<volume>/...    hosts    nsswitch.conf
              root/<container>/       what the container's root is built on, or stands in for it
              logs/<container>/<run>/ messages/<container>

Folders are the node's user's alone: secrets stand in them in clear, until the pod is gone.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from stromboli.embedded.processes.core import environment, volumes
from stromboli.embedded.processes.core.pod import HostPath

HOSTS, LOOKUP = Path("/etc/hosts"), Path("/etc/nsswitch.conf")
RUNS_KEPT = 2
"""Output of the run that is and of the one before it, as ``--previous`` asks."""
MESSAGE_BYTES = 4096
"""The most of a termination message, as Kubernetes has it."""


class PodFolder:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hosts = path / "hosts"
        self.lookup = path / "nsswitch.conf"

    def make(self, names: str, lookup: str | None) -> None:
        """Create what every pod has."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write_hosts(names)
        if lookup is not None:
            self.lookup.write_text(lookup)

    def write_hosts(self, names: str) -> None:
        """Replace the hosts file in place: it is mounted, and a reader must never see it empty."""
        data = names.encode()
        flags = os.O_WRONLY | os.O_CREAT
        with open(os.open(self.hosts, flags, 0o644), "r+b", buffering=0, closefd=True) as file:
            file.write(data)
            file.truncate(len(data))

    def lay(self, contents: Mapping[str, volumes.VolumeContent]) -> None:
        """Bring the volumes about. Those of the API become what they say now, file by file and each
        at once; others are kept."""
        for name, content in contents.items():
            if content.host is not None:
                _check_host(content.host)
                continue
            folder = self.path / "volumes" / name
            folder.mkdir(parents=True, exist_ok=True)
            for file in content.files:
                _write(folder / file.path, file.content, file.mode)
            if not content.is_given:
                folder.chmod(0o777)
                continue
            wanted = {folder / file.path for file in content.files}
            for path in folder.rglob("*"):
                if path.is_file() and path not in wanted:
                    path.unlink()

    def source(self, place: volumes.VolumeMount, content: volumes.VolumeContent) -> Path:
        """Where a mount's files are; a folder below a volume is made if it is missing."""
        host = content.host
        whole = self.path / "volumes" / place.volume if host is None else Path(host.path)
        source = whole / place.path if place.path else whole
        if place.path and not source.exists():
            if content.is_given:
                raise environment.MissingError(f"volume {place.volume} has no {place.path}")
            source.mkdir(parents=True)
        return source

    def placeholder(self, container: str, mounts: Iterable[tuple[Path, str]]) -> Path:
        """A folder in which the mounts lie at their paths, as links: for ``$STROM_POD_ROOT``."""
        root = self.root(container)
        for source, target in sorted(mounts, key=lambda it: it[1]):
            link = root / target.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if link.is_symlink():
                link.unlink()
            with contextlib.suppress(FileExistsError):
                link.symlink_to(source)
        return root

    def root(self, container: str) -> Path:
        """An empty folder for the container's root."""
        root = self.path / "root" / container
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        return root

    def begin_log(self, container: str, run: int) -> Path:
        """The folder for a run's output; older ones are let go of."""
        folder = self.log(container, run)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        for old in folder.parent.iterdir():
            if int(old.name) <= run - RUNS_KEPT:
                shutil.rmtree(old)
        return folder

    def log(self, container: str, run: int) -> Path:
        """Where a run's output is."""
        return self.path / "logs" / container / str(run)

    def runs(self, container: str) -> list[int]:
        """The runs whose output is kept, the newest last."""
        folder = self.path / "logs" / container
        return sorted(int(path.name) for path in folder.iterdir()) if folder.is_dir() else []

    def begin_message(self, container: str) -> Path:
        """An empty file for what a container says at its end."""
        path = self.path / "messages" / container
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        return path

    def message(self, container: str) -> str:
        """What it said, shortened."""
        try:
            with (self.path / "messages" / container).open("rb") as file:
                return file.read(MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        """Delete everything; what containers made unreadable is made readable first."""

        def retry(function: object, path: str, _: object) -> None:
            with contextlib.suppress(OSError):
                os.chmod(os.path.dirname(path), 0o700)
                os.chmod(path, 0o700)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

        shutil.rmtree(self.path, onerror=retry)


def _write(path: Path, content: bytes, mode: int) -> None:
    """A reader sees the old file or the new one."""
    if path.is_file() and path.read_bytes() == content:
        path.chmod(mode)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.write_bytes(content)
    fresh.chmod(mode)
    fresh.replace(path)


def _check_host(host: HostPath) -> None:
    """Make or check a path of the machine. Raises MissingError that says what is wrong."""
    path = Path(host.path)
    try:
        if host.type == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif host.type == "FileOrCreate":
            path.touch(exist_ok=True)
    except OSError as error:
        raise environment.MissingError(f"hostPath {path}: {error.strerror}") from None
    wanted = {
        "Directory": path.is_dir,
        "File": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if not wanted.get(host.type.removesuffix("OrCreate"), path.exists)():
        kind = host.type or "path"
        raise environment.MissingError(f"hostPath {path}: no such {kind} on this machine")

"""A pod's folder on the node's disk: volumes, hosts file, output of its containers.

::

    <pod uid>/volumes/<volume>/...    hosts    nsswitch.conf
              root/<container>/       base of the container's root, or its replacement
              logs/<container>/<run>/ messages/<container>    scratch/<container>/

Only the node's user can read the folders: they contain secrets in clear text until the pod is
deleted.
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
"""Runs of a container whose output is kept: the current one, and the previous one for
``--previous``."""
MESSAGE_BYTES = 4096
"""Size limit of a termination message, as in Kubernetes."""


class PodFolder:
    """The folder of one pod."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hosts = path / "hosts"
        self.lookup = path / "nsswitch.conf"

    def make(self, names: str, lookup: str | None) -> None:
        """Create the folder with the files that every pod has."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.write_hosts(names)
        if lookup is not None:
            self.lookup.write_text(lookup)

    def write_hosts(self, names: str) -> None:
        """Replace the content of the hosts file in place: it is mounted, and readers must never see
        it empty.
        """
        data = names.encode()
        flags = os.O_WRONLY | os.O_CREAT
        with open(os.open(self.hosts, flags, 0o644), "r+b", buffering=0, closefd=True) as file:
            file.write(data)
            file.truncate(len(data))

    def lay(self, contents: Mapping[str, volumes.VolumeContent]) -> None:
        """Create the volumes. Files from API objects are replaced one by one, each atomically;
        other volumes are kept.
        """
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
        """Return the path that a mount shows; create a missing ``subPath``. Raises MissingError if
        a read-only volume does not have it."""
        host = content.host
        whole = self.path / "volumes" / place.volume if host is None else Path(host.path)
        source = whole / place.path if place.path else whole
        if place.path and not source.exists():
            if content.is_given:
                raise environment.MissingError(f"volume {place.volume} has no {place.path}")
            source.mkdir(parents=True)
        return source

    def placeholder(self, container: str, mounts: Iterable[tuple[Path, str]]) -> Path:
        """Return a folder with links to the mounts at their paths, for ``$STROM_POD_ROOT``."""
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
        """Return an empty folder for the container's root."""
        root = self.path / "root" / container
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        return root

    def scratch(self, container: str) -> Path:
        """Return a new folder for temporary files of a container with an image of its own."""
        folder = self.path / "scratch" / container
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        return folder

    def begin_log(self, container: str, run: int) -> Path:
        """Return an empty folder for a run's output; keep only the output of the previous run."""
        folder = self.log(container, run)
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        for old in folder.parent.iterdir():
            if int(old.name) <= run - RUNS_KEPT:
                shutil.rmtree(old)
        return folder

    def log(self, container: str, run: int) -> Path:
        """Return the folder of a run's output."""
        return self.path / "logs" / container / str(run)

    def containers(self) -> list[str]:
        """Return the containers whose output is kept."""
        folder = self.path / "logs"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def runs(self, container: str) -> list[int]:
        """Return the runs whose output is kept, the newest last."""
        folder = self.path / "logs" / container
        return sorted(int(path.name) for path in folder.iterdir()) if folder.is_dir() else []

    def begin_message(self, container: str) -> Path:
        """Return an empty file for the termination message."""
        path = self.path / "messages" / container
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
        return path

    def message(self, container: str) -> str:
        """Return the termination message, truncated."""
        try:
            with (self.path / "messages" / container).open("rb") as file:
                return file.read(MESSAGE_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def remove(self) -> None:
        """Delete the folder, including files that containers made unreadable."""

        def retry(function: object, path: str, _: object) -> None:
            with contextlib.suppress(OSError):
                os.chmod(os.path.dirname(path), 0o700)
                os.chmod(path, 0o700)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)

        shutil.rmtree(self.path, onerror=retry)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write atomically: a reader sees the old or the new file."""
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
    """Create or check a path of the machine. Raises MissingError with the reason."""
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


def may_enter(path: str) -> bool:
    """Return whether this user may start a process in a directory."""
    return os.path.isdir(path) and os.access(path, os.X_OK)

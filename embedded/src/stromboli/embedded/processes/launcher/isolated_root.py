"""The root of an isolated container: visible folders of the machine, the pod's mounts, and nothing
else.

::

    /                 in memory, read-only
    /usr, /etc, ...   visible folders, read-only with all mounts below them
    /proc, /dev, /sys as in container runtimes: own processes, the usual devices, settings read-only
    volumes           the pod's mounts, over the others

Missing mount points in visible folders are created as in ``container_view``. Commands run without
the rights that could change this (``children.confine``). The masked and read-only paths are those
of container runtimes:
https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict

from stromboli.embedded.processes.launcher import container_view
from stromboli.embedded.processes.launcher.container_view import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    Tree,
)

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
READ_ONLY = ("proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger")
HIDDEN = (
    *("proc/acpi", "proc/scsi", "proc/kcore", "proc/keys", "proc/latency_stats"),
    *("proc/timer_list", "proc/sched_debug", "sys/firmware"),
    *("etc/shadow", "etc/gshadow", "etc/kubernetes", "etc/rancher"),
)
_WRITABLE = ("/proc", "/dev/pts", "/dev/shm", "/dev/mqueue")
_VISIBLE = "."
"""Key in a tree: the path of the machine that is visible there."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Isolation(TypedDict):
    """``visible``: paths that are shown read-only, with links resolved by ``visible_paths``;
    ``devices``: paths of further devices in ``/dev``.
    """

    visible: list[str]
    devices: list[str]


def visible_paths(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist, with the targets of links."""
    existing_paths = {}
    for path in map(os.path.abspath, paths):
        if not os.path.exists(path):
            continue
        real = os.path.realpath(path)
        existing_paths[real] = True
        if os.path.islink(path):
            existing_paths[
                os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
            ] = True
    return sorted(existing_paths)


def root_tree(
    mounts: Iterable[Mapping[str, Any]],
    visible: Iterable[str],
    resolve: Callable[[str], str] = os.path.realpath,
) -> Tree:
    """Return the mounts and the visible paths as a tree of path components.

    A mount replaces a visible path at its target; a visible path below a mount is mounted into it.
    Visible paths below visible paths need no mount of their own.
    """
    tree: Tree = {}
    targets = {}
    for mount in mounts:
        # A path may contain symbolic links of the machine, such as /var/run; they are followed.
        target = resolve(str(mount["target"]))
        targets[target] = mount
        _at(tree, target)[""] = mount
    visible_roots: list[str] = []
    for path in sorted(visible):
        above = [it for it in (*targets, *visible_roots) if path == it or path.startswith(f"{it}/")]
        nearest = max(above, key=len, default="")
        if path in targets or nearest in visible_roots:
            continue
        visible_roots.append(path)
        if nearest:
            _at(tree, path)[""] = {"source": path, "target": path, "read_only": True}
        else:
            _at(tree, path)[_VISIBLE] = path
    return tree


def enter(
    folder: str, mounts: list[Mapping[str, Any]], hostname: str, isolation: Isolation
) -> None:
    """Build the root in the empty folder ``folder``, and enter it. ``mounts``: as in
    ``container_view.enter``. Raises OSError that names the step.
    """
    container_view.mount_at("none", "/", "", MS_REC | MS_PRIVATE)
    container_view.mount_at("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    os.mkdir(f"{folder}/proc")
    container_view.mount_at("proc", f"{folder}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _make_devices(f"{folder}/dev", isolation["devices"])
    tree = root_tree(mounts, isolation["visible"])
    late: list[str] = []
    _build(folder, tree, late)
    os.makedirs(f"{folder}/var", exist_ok=True)
    if not os.path.lexists(f"{folder}/var/run"):
        os.symlink("/run", f"{folder}/var/run")
    for path in READ_ONLY:
        _bind_itself(f"{folder}/{path}")
    for path in HIDDEN:
        _hide(f"{folder}/{path}")
    mount_targets = [(os.path.realpath(str(it["target"])), bool(it["read_only"])) for it in mounts]
    is_writable = {
        **dict.fromkeys(_WRITABLE, True),
        **{f"/{path}": False for path in (*READ_ONLY, *HIDDEN)},
        **{target.removeprefix(folder): False for target in late},
        **{target: not read_only for target, read_only in mount_targets},
    }
    for target in _mount_points(folder):
        if not _nearest(target.removeprefix(folder) or "/", is_writable):
            container_view.make_read_only(target)
    container_view.change_root(folder, hostname)


def _at(tree: Tree, path: str) -> Tree:
    place = tree
    for part in path.strip("/").split("/"):
        place = place.setdefault(part, {})
    return place


def _build(destination: str, tree: Tree, late: list[str]) -> None:
    """Make the paths of the tree below ``destination``, a folder in memory."""
    for name, below in tree.items():
        target = f"{destination}/{name}"
        is_new = not os.path.lexists(target)
        if "" in below:
            if is_new:
                is_folder = os.path.isdir(str(below[""]["source"]))
                container_view.make_mount_point(target, is_folder=is_folder)
            container_view.mount_over(destination, {name: below}, late)
        elif (real := below.get(_VISIBLE)) is None:
            if is_new:
                os.mkdir(target)
            _build(target, below, late)
        elif os.path.islink(real):
            os.symlink(os.readlink(real), target)
        else:
            if is_new:
                container_view.make_mount_point(target, is_folder=os.path.isdir(real))
            rest = {key: value for key, value in below.items() if key != _VISIBLE}
            container_view.mount_tree(real, target, rest, late)


def _make_devices(folder: str, more: Iterable[str]) -> None:
    os.mkdir(folder)
    container_view.mount_at("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k")
    for path in (*(f"/dev/{name}" for name in DEVICES), *more):
        target = f"{folder}/{path.removeprefix('/dev/')}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        container_view.make_mount_point(target, is_folder=os.path.isdir(path))
        container_view.mount_at(path, target, "", MS_BIND | MS_REC)
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", "mode=1777"),
        ("mqueue", "mqueue", ""),
    ):
        os.mkdir(f"{folder}/{name}")
        # No queues where the kernel has none; nothing else uses the folder.
        with contextlib.suppress(OSError) if name == "mqueue" else contextlib.nullcontext():
            flags = MS_NOSUID | MS_NOEXEC | (0 if name == "pts" else MS_NODEV)
            container_view.mount_at(kind, f"{folder}/{name}", kind, flags, options)
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(target, f"{folder}/{name}")


def _bind_itself(path: str) -> None:
    """Make a path a mount of its own, which can become read-only."""
    if os.path.exists(path):
        container_view.mount_at(path, path, "", MS_BIND | MS_REC)


def _hide(path: str) -> None:
    if os.path.isdir(path):
        container_view.mount_at("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "size=4k")
    elif os.path.exists(path):
        container_view.mount_at("/dev/null", path, "", MS_BIND)


def _mount_points(folder: str) -> list[str]:
    """Return the mount points at and below a folder."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        fields = [line.split(" ")[4] for line in file]
    paths = [_ESCAPED.sub(lambda match: chr(int(match[1], 8)), field) for field in fields]
    return [path for path in paths if path == folder or path.startswith(f"{folder}/")]


def _nearest(path: str, is_writable: Mapping[str, bool]) -> bool:
    """Return the value of the deepest path at or above this one, False without one."""
    while path not in is_writable:
        if path == "/":
            return False
        path = os.path.dirname(path)
    return is_writable[path]

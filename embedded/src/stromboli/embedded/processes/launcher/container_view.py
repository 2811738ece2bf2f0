"""A container's view of the machine: mounts at their specified paths, own process ids and host
name.

The file system is the machine's, with the pod's mounts on top (``isolated_root`` is the
alternative). A missing mount point is created without touching the machine: its nearest existing
folder is mirrored into memory, each entry bind-mounted, and the missing one added.

Root needs no user namespace for this; other users get one in which they are root, as in most
images.
"""

import ctypes
import os
import stat
from collections.abc import Mapping
from typing import Any

from stromboli.embedded.processes.launcher.children import libc

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
CLONE_NEWIPC = 0x8000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
_KEPT_FLAGS = MS_NOSUID | MS_NODEV | MS_NOEXEC | 1024 | 2048
"""Mount flags that a bind mount must keep (access times excluded): the same bits as in statvfs."""

Tree = dict[str, Any]
"""Path component -> subtree; the key "" holds the mount at that path."""


def unshare(*, as_root: bool, isolated: bool = False) -> None:
    """Create namespaces for mounts, host name and children, and for shared memory and message
    queues if ``isolated``. Raises OSError where they are not allowed.
    """
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID | (CLONE_NEWIPC if isolated else 0)
    if as_root:
        _check(libc.unshare(flags), "create namespaces")
        return
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(flags | CLONE_NEWUSER), "create namespaces with a user namespace")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def enter(folder: str, mounts: list[Mapping[str, Any]], hostname: str) -> None:
    """Mount over the machine's files, make the result the root, and mount a new ``/proc``.

    ``folder``: an empty folder to build on. ``mounts``: ``source``, ``target`` (absolute paths) and
    ``read_only``. Raises OSError that names the step.
    """
    mount_at("none", "/", "", MS_REC | MS_PRIVATE)
    tree: Tree = {}
    for mount in mounts:
        place = tree
        # A path may contain symbolic links of the machine, such as /var/run; they are followed.
        for part in os.path.realpath(str(mount["target"])).strip("/").split("/"):
            place = place.setdefault(part, {})
        place[""] = mount
    late: list[str] = []
    mount_tree("/", folder, tree, late)
    mount_at("proc", f"{folder}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for target in late:
        make_read_only(target)
    change_root(folder, hostname)


def change_root(folder: str, hostname: str) -> None:
    """Make ``folder`` the root, and set the host name."""
    name = hostname.encode()
    _check(libc.sethostname(name, len(name)), f"set the host name {hostname}")
    os.chdir(folder)
    _check(libc.pivot_root(b".", b"."), "change the root")
    _check(libc.umount2(b".", MNT_DETACH), "unmount the old root")
    os.chdir("/")


def mount_tree(real: str, destination: str, tree: Tree, late: list[str]) -> None:
    """Make ``destination`` a mirror of ``real`` with the mounts of the tree in it."""
    if _has_all(real, tree):
        mount_at(real, destination, "", MS_BIND | MS_REC)
        mount_over(destination, tree, late)
        return
    mount_at("tmpfs", destination, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    for entry in _entries(real):
        if entry.name not in tree:
            _mirror(entry, f"{destination}/{entry.name}")
    for name, below in tree.items():
        target, source = f"{destination}/{name}", os.path.join(real, name)
        if "" in below:
            make_mount_point(target, is_folder=os.path.isdir(str(below[""]["source"])))
            mount_over(destination, {name: below}, late)
        else:
            os.mkdir(target)
            mount_tree(source, target, below, late)


def mount_over(destination: str, tree: Tree, late: list[str]) -> None:
    """Bind the mounts of a tree below a folder in which the mount points exist or can be
    created.
    """
    for name, below in tree.items():
        target = f"{destination}/{name}" if name else destination
        if mount := below.get(""):
            source = str(mount["source"])
            if not os.path.lexists(target):
                make_mount_point(target, is_folder=os.path.isdir(source))
            mount_at(source, target, "", MS_BIND | MS_REC)
            if mount.get("read_only"):
                late.append(target)
        elif not os.path.isdir(target):
            os.mkdir(target)
        mount_over(target, {key: value for key, value in below.items() if key}, late)


def _has_all(real: str, tree: Tree) -> bool:
    """Return whether every mount point exists, so that no folder needs a mirror."""
    for name, below in tree.items():
        path = os.path.join(real, name)
        if "" in below:
            if not os.path.lexists(path):
                return False
            if os.path.isdir(path) != os.path.isdir(str(below[""]["source"])):
                return False
        elif not os.path.isdir(path) or not _has_all(path, below):
            return False
    return True


def make_read_only(target: str) -> None:
    """Make the mount at ``target`` read-only, not those below it."""
    flags = os.statvfs(target).f_flag & _KEPT_FLAGS
    mount_at("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; none if it is not a readable folder."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _mirror(entry: os.DirEntry[str], target: str) -> None:
    """Mirror one entry of a folder; skip an entry that cannot be bind-mounted."""
    try:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
            return
        make_mount_point(target, is_folder=entry.is_dir())
        mount_at(entry.path, target, "", MS_BIND | MS_REC)
    except OSError:
        return


def make_mount_point(target: str, *, is_folder: bool) -> None:
    """Create an empty folder or file."""
    if is_folder:
        os.mkdir(target)
    else:
        os.mknod(target, stat.S_IFREG | 0o600)


def mount_at(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount. Raises OSError that names both paths."""
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None
    )
    _check(result, f"mount {source} on {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")

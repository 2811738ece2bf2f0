"""Reads the relevant files of ``/sys``."""

import glob
import os
from pathlib import Path

from stromboli.monitor.core.hardware import sysfs_tree

LONGEST_BYTES = 64 * 1024
"""Maximum bytes read from a file: the CPU list of a large machine is far shorter."""


def read(root: Path) -> sysfs_tree.SysfsTree:
    """The files and links that ``sysfs_tree`` names; those that cannot be read with the reason."""
    top = os.path.realpath(root)
    texts: dict[str, str] = {}
    links: dict[str, str] = {}
    failed: dict[str, str] = {}
    if not os.path.isdir(top):
        return sysfs_tree.SysfsTree({}, {}, {"": f"{root} is not a directory"})
    for pattern in sysfs_tree.FILES:
        for path in sorted(glob.iglob(pattern, root_dir=top)):
            try:
                with open(os.path.join(top, path), "rb") as file:
                    texts[path] = file.read(LONGEST_BYTES).decode(errors="replace").strip()
            except OSError as error:
                failed[path] = error.strerror or str(error)
    for pattern in sysfs_tree.LINKS:
        for path in sorted(glob.iglob(pattern, root_dir=top)):
            real = os.path.realpath(os.path.join(top, path))
            if real.startswith(top + os.sep):
                links[path] = real[len(top) + 1 :]
    return sysfs_tree.SysfsTree(texts, links, failed)


def fingerprint(root: Path) -> tuple[str, ...]:
    """A value that changes when CPUs or PCI devices are added or removed: much cheaper than
    ``read``.
    """
    parts = []
    for name in ("devices/system/cpu/online", "devices/system/node/online"):
        try:
            parts.append((root / name).read_text())
        except OSError as error:
            parts.append(str(error))
    try:
        parts += sorted(os.listdir(root / "bus/pci/devices"))
    except OSError as error:
        parts.append(str(error))
    return tuple(parts)

"""The private folders of an isolated container, and the devices that it sees."""

import posixpath
from collections.abc import Collection, Mapping

from stromboli.embedded.processes.core import pod as pods

FOLDERS = {"/tmp": "tmp", "/var/tmp": "var-tmp", "/run": "run"}
"""Path in the container -> name of the private empty folder there; the home folder is added."""
HOME = "home"
DEVICES = {
    "nvidia.com/": ("/dev/nvidia*", "/dev/dri"),
    "amd.com/gpu": ("/dev/kfd", "/dev/dri"),
    "rdma/": ("/dev/infiniband",),
}
"""Prefix of an extended resource -> patterns of the devices that a container with it sees: all of
them, because no device plugin assigns single devices."""


def base(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the machine that are correct in an isolated container."""
    return {name: value for name, value in variables.items() if name != "TMPDIR"}


def home_of(variables: Mapping[str, str]) -> str:
    """Return the absolute path of the home folder."""
    home = posixpath.normpath(variables.get("HOME", ""))
    return home if posixpath.isabs(home) and home != "/" else "/root"


def folders(home: str, mounted: Collection[str]) -> dict[str, str]:
    """Return path -> name of the private folders, without those that a volume replaces."""
    names_by_path = {**FOLDERS, home: HOME}
    return {path: name for path, name in names_by_path.items() if path not in mounted}


def devices(container: pods.Container) -> list[str]:
    """Return the patterns of the devices that a container sees in addition to the usual ones."""
    resources = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    return [
        pattern
        for prefix, patterns in DEVICES.items()
        if any(name.startswith(prefix) for name in resources)
        for pattern in patterns
    ]

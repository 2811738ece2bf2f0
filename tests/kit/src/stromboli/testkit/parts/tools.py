"""Paths of the programs of the real parts on this machine, as installed by `make real-tools`."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALLER = Path("tools") / "real" / "install.py"
KUBELET_INSTALLER = "kubelets.py"
"""Beside it."""
ENGINE_INSTALLER = "engine.py"
"""Beside it."""
OPERATOR_INSTALLER = "operators.py"
"""Beside it."""
VOLCANO_INSTALLER = "volcano.py"
"""Beside it."""
IMAGE_FILE_INSTALLER = "image_files.py"
"""Beside it."""
LOCATE_TIMEOUT_S = 60


class RealPartsMissingError(Exception):
    """The real parts are not installed. The message is one line with the command that installs
    them."""


@dataclass(frozen=True)
class Tools:
    """Paths of the programs of the real parts."""

    java: Path
    bin: Path
    libs: Path

    def program(self, name: str) -> str:
        """The path of one of the built programs, such as `kube-apiserver`."""
        return str(self.bin / name)


@dataclass(frozen=True)
class KubeletTools:
    """Paths of the programs that real kubelets need, as ``make kubelet-tools`` prints them."""

    kubelet: str
    scheduler: str
    """kube-scheduler of the same build."""
    containerd: str
    """Its shim and ``ctr`` are beside it."""
    runc: str
    cni: str
    busybox: str
    unshare: str
    mpi_image: str
    """Tar of a root file system with OpenMPI and sshd."""
    torch_image: str
    """Tar of the same root file system with PyTorch."""
    debug_tools_image: str
    """Tar of the same root file system with JupyterLab and TensorBoard."""
    code_server_image: str
    """Tar of the same root file system with code-server."""
    terminal_image: str
    """Tar of a root file system with ttyd."""
    spark_image: str
    """Tar of the same root file system with Spark and Java."""


@dataclass(frozen=True)
class EngineTools:
    """Paths of the programs that a container engine needs, as ``make engine-tools`` prints them."""

    dockerd: str
    docker: str
    containerd: str
    runc: str
    iptables: str
    slirp4netns: str
    busybox: str
    unshare: str
    nsenter: str
    ip: str
    compose: str
    """Compose as a plugin of ``docker``."""
    python_image: str
    """Tar of a root file system that replaces the base image of our Dockerfiles."""
    cache: str
    """The folder of images, which all clones of the repository share."""


@dataclass(frozen=True)
class ImageFileTools:
    """Paths of the programs that run image files, as ``make sif-tools`` prints them."""

    singularity: str
    busybox: str
    mksquashfs: str
    mpi_image: str
    """Tar of a root file system with OpenMPI and sshd."""


@dataclass(frozen=True)
class OperatorTool:
    """A third-party controller: its program, and the folder with its manifests and examples."""

    directory: Path
    program: str
    version: str

    def files(self, folder: str) -> list[Path]:
        """The YAML files of a folder of its manifests or examples."""
        return sorted((self.directory / folder).glob("*.yaml"))


def installer() -> Path:
    """The installer of the working tree from which this package is installed.

    Raises RealPartsMissingError outside a working tree, where the versions are unknown.
    """
    for directory in Path(__file__).resolve().parents:
        if (directory / INSTALLER).is_file():
            return directory / INSTALLER
    raise RealPartsMissingError(
        "the real parts are started from a working tree: install this package editable from one"
    )


@functools.cache
def locate() -> Tools:
    """The installed programs; raises RealPartsMissingError if they are not. About 0.2 s, once."""
    requested = subprocess.run(
        [sys.executable, str(installer()), "--where"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LOCATE_TIMEOUT_S,
    )
    if requested.returncode != 0:
        lines = requested.stderr.strip().splitlines()
        raise RealPartsMissingError(lines[-1] if lines else "run `make real-tools`")
    paths = json.loads(requested.stdout)
    return Tools(java=Path(paths["java"]), bin=Path(paths["bin"]), libs=Path(paths["libs"]))


@functools.cache
def locate_kubelets() -> KubeletTools:
    """The programs that real kubelets need. Raises RealPartsMissingError that names missing
    ones."""
    return KubeletTools(**_located(KUBELET_INSTALLER, "run `make kubelet-tools`"))


@functools.cache
def locate_engine() -> EngineTools:
    """The programs that a container engine needs. Raises RealPartsMissingError that names missing
    ones."""
    return EngineTools(**_located(ENGINE_INSTALLER, "run `make engine-tools`"))


@functools.cache
def locate_operators() -> dict[str, OperatorTool]:
    """Third-party controllers by name. Raises RealPartsMissingError that names missing ones."""
    found = _located(OPERATOR_INSTALLER, "run `make operator-tools`")
    return {
        name: OperatorTool(Path(it["directory"]), it["program"], it["version"])
        for name, it in found.items()
    }


@functools.cache
def locate_volcano() -> Path:
    """The folder of Volcano's suites. Raises RealPartsMissingError if they are not built."""
    return Path(_located(VOLCANO_INSTALLER, "run `make volcano-tools`")["directory"])


@functools.cache
def locate_image_files() -> ImageFileTools:
    """The programs that run image files. Raises RealPartsMissingError that names missing ones."""
    return ImageFileTools(**_located(IMAGE_FILE_INSTALLER, "run `make sif-tools`"))


def _located(script: str, remedy: str) -> dict[str, Any]:
    """The paths that an installer script prints. Raises RealPartsMissingError with ``remedy``."""
    requested = subprocess.run(
        [sys.executable, str(installer().with_name(script)), "--where"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LOCATE_TIMEOUT_S,
    )
    if requested.returncode != 0:
        lines = requested.stderr.strip().splitlines()
        raise RealPartsMissingError(lines[-1] if lines else remedy)
    found: dict[str, Any] = json.loads(requested.stdout)
    return found

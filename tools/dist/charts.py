"""Packages the Helm charts, for `helm install stromboli-0.1.0.tgz` without a clone of the
repository.

Each package contains its subcharts, to which the sources have symbolic links.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tools.real import cache

LIBRARIES = ("common",)
"""Charts that are only subcharts of others."""


def installed_helm(root: Path) -> Path | None:
    """The path of Helm: from PATH, else the one that `make real-tools` built; None if there is
    none."""
    if on_path := shutil.which("helm"):
        return Path(on_path)
    built = cache.directory(root, os.environ) / "bin/helm"
    return built if built.is_file() else None


def sources(root: Path) -> list[Path]:
    """The folders of the charts that users install."""
    paths = (*root.glob("charts/*/Chart.yaml"), *root.glob("services/*/chart/Chart.yaml"))
    return sorted(each.parent for each in paths if each.parent.name not in LIBRARIES)


def package(helm: Path, root: Path, folder: Path) -> list[Path]:
    """Write one package per chart into ``folder``, and return them.

    Raises subprocess.CalledProcessError if Helm rejects a chart.
    """
    command: list[str | Path] = [helm, "package", *sources(root), "--destination", folder]
    # Helm warns about each link to a subchart, and packages the target of the link.
    subprocess.run(command, check=True, capture_output=True, text=True)
    return sorted(folder.glob("stromboli*.tgz"))

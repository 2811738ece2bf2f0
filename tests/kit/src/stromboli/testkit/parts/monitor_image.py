"""The image of the monitor and its node agent for real kubelets, made without a container engine.

As its Dockerfile does, uv installs the locked dependencies, then the packages of this working tree.
They become a layer over a root file system with Debian's Python.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PYTHON = "3.11"
"""Of Debian 12, of which the root file system is."""
PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"
"""Where Debian's Python looks for packages that an administrator installed."""
LIMIT_S = 300


def write_layer(repository: Path, tar: Path) -> None:
    """Write the layer; seconds when uv has cached the wheels. Raises CalledProcessError."""
    with tempfile.TemporaryDirectory(prefix="strom-monitor-") as made:
        service = repository / "services" / "monitor"
        locked = ["--require-hashes", "--requirements", str(service / "requirements.txt")]
        _install(made, *locked, "--only-binary", ":all:")
        _install(made, "--no-deps", "--no-sources", str(repository / "shared"), str(service))
        with tarfile.open(tar, "w") as layer:
            layer.add(made, PACKAGES)
            link = tarfile.TarInfo("usr/bin/python")
            link.type, link.linkname = tarfile.SYMTYPE, "python3"
            layer.addfile(link, io.BytesIO())


def _install(folder: str, *words: str) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["--quiet", "--target", folder, "--python-version", PYTHON]
    subprocess.run(
        [uv, "pip", "install", *options, *words], check=True, capture_output=True, timeout=LIMIT_S
    )

"""Writes SIF files without a registry. `singularity build` does the same and more: it asks a server
of keys."""

import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stromboli.testkit.parts.tools import ImageFileTools

ARCHITECTURES = {"x86_64": 2, "aarch64": 4}
"""Numbers of architectures in SIF files."""
WITHIN_S = 240


def write(tools: ImageFileTools, root: Path, sif: Path) -> None:
    """Write a SIF file with a root file system: a directory or a tar archive."""
    files = sif.with_name(f"{sif.stem}.squashfs")
    squash = [tools.mksquashfs, str(root), str(files), "-noappend", "-quiet"]
    if root.is_file():
        squash = [tools.mksquashfs, "-", str(files), "-tar", "-quiet"]
    partition = {"datatype": 4, "parttype": 2, "partfs": 1, "groupid": 1}
    partition["partarch"] = ARCHITECTURES[platform.machine()]
    options = [f"--{name}={value}" for name, value in partition.items()]
    _run(squash, root if root.is_file() else Path("/dev/null"))
    _run([tools.singularity, "sif", "new", str(sif)])
    _run([tools.singularity, "sif", "add", *options, str(sif), str(files)])


def _run(command: Sequence[str], stdin: Path = Path("/dev/null")) -> None:
    with stdin.open("rb") as content:
        done = subprocess.run(
            command, stdin=content, check=False, capture_output=True, text=True, timeout=WITHIN_S
        )
    assert done.returncode == 0, done.stderr

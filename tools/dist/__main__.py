"""Builds all files of a release into one folder: ``make dist``.

Wheels and source distributions, chart packages, images as OCI archives, bills of materials, the
lock, and SHA256SUMS of all of them. Files whose tool is not installed on this machine are left out,
with a line that names the tool.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import release_version, sbom
from tools.dist import charts, images, oci, wheels

CHECKSUMS = "SHA256SUMS"


def clear(folder: Path) -> None:
    """Remove the files of earlier builds; files with other names are kept."""
    for old in (*wheels.own_files(folder), folder / CHECKSUMS):
        old.unlink(missing_ok=True)


def add_charts(root: Path, folder: Path) -> str:
    """Package the charts. Returns a line for the user: the result, or why there is none."""
    helm = charts.installed_helm(root)
    if helm is None:
        return "no chart packages: helm is not installed; `make real-tools` builds it"
    return f"{len(charts.package(helm, root, folder))} chart packages"


def add_images(root: Path, folder: Path) -> str:
    """Build the images. Returns a line for the user: the result, or why there is none."""
    docker = images.engine(os.environ)
    if docker is None:
        return "no images: `docker version` finds no container engine"
    return f"{len(images.build(docker, root, release_version.current(root), folder))} images"


def write_checksums(folder: Path) -> int:
    """Write SHA256SUMS, in the format of ``sha256sum --check``; returns how many files it lists."""
    lines = []
    for path in wheels.own_files(folder):
        with path.open("rb") as file:
            lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
    return len(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build into the folder given on the command line, and check the wheels unless ``--no-check``
    is given."""
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the files")
    parser.add_argument("--no-check", action="store_true", help="do not install the wheels")
    chosen = parser.parse_args(arguments)
    folder = chosen.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    try:
        built = wheels.build(folder)
        print(f"{len(built)} wheels and their source distributions")
        print(add_charts(wheels.ROOT, folder))
        print(add_images(wheels.ROOT, folder))
        sbom.write(folder)
        print(f"{write_checksums(folder)} files and {CHECKSUMS} in {folder}")
        if not chosen.no_check:
            print(wheels.check(built).splitlines()[0], "runs the demo from the wheels")
    except subprocess.CalledProcessError as error:
        print(f"dist: {error}\n{error.stderr or ''}".rstrip(), file=sys.stderr)
        return 1
    except oci.NotAnImageError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

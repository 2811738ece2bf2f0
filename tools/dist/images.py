"""Builds the services' images as OCI archives, for `docker load` and for copies to registries."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tools import sbom
from tools.dist import oci

BUILD_ARGUMENTS = ("CA_CERTIFICATES", "PYTHON_IMAGE")
"""Build arguments of the Dockerfiles that are taken from the environment, if set there."""


def engine(environment: Mapping[str, str]) -> str | None:
    """``docker`` if its engine responds, else None."""
    docker = shutil.which("docker")
    if docker is None:
        return None
    answered = subprocess.run(
        [docker, "version", "--format", "{{.Server.Version}}"],
        env=dict(environment),
        check=False,
        capture_output=True,
        timeout=60,
    )
    return docker if answered.returncode == 0 else None


def build(
    docker: str, root: Path, version: str, folder: Path, environment: Mapping[str, str] = os.environ
) -> list[Path]:
    """Build each service's image and save it in ``folder``; return the archives.

    Docker 25 and later save in the OCI layout; the archives of older engines are rewritten. Raises
    subprocess.CalledProcessError if a build fails, and oci.NotAnImageError.
    """
    archives = []
    arguments = [f"--build-arg={name}" for name in BUILD_ARGUMENTS if environment.get(name)]
    for service in sbom.SERVICES:
        name = f"stromboli-{service}"
        archive = folder / f"{name}-{version}.oci.tar"
        saved = folder / f"{name}-{version}.docker.tar"
        file = f"--file=services/{service}/Dockerfile"
        for command in (
            ["build", "--quiet", file, f"--tag={name}:{version}", *arguments, "."],
            ["save", f"--output={saved}", f"{name}:{version}"],
        ):
            subprocess.run(
                [docker, *command],
                cwd=root,
                env=dict(environment),
                check=True,
                stdout=subprocess.DEVNULL,
            )
        if oci.is_oci(saved):
            saved.replace(archive)
        else:
            oci.rewrite(saved, archive)
            saved.unlink()
        archives.append(archive)
    return archives

"""Root file systems of images that tests run, made from Debian's packages without a registry.

`mmdebstrap` unpacks packages of this machine's own release, from the sources that its apt has, into
a tar. One is made: `mpi`, with OpenMPI, sshd and mpi4py, as images of MPI jobs have them. Its path
holds a digest of this recipe, so that clones share it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path

from tools.real import cache
from tools.real.errors import InstallError

REVISION = "1"  # raise it to make the images again, as for newer packages
PACKAGES = ("openmpi-bin", "openssh-server", "python3-mpi4py")
OMITTED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
SSHD = "UsePAM no\n"
"""A container has no audit session, which Debian's PAM modules of sshd open."""
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
LIMIT_S = 900


def place(env: dict[str, str]) -> Path:
    """The folder of the images that this recipe makes, whether made or not."""
    recipe = "\n".join((REVISION, platform.machine(), release(), *PACKAGES, *OMITTED, SSHD))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    return cache.shared_root(env) / f"images-{digest}"


def release() -> str:
    """The code name of this machine's release. Raises InstallError."""
    try:
        return platform.freedesktop_os_release()["VERSION_CODENAME"]
    except (OSError, KeyError) as error:
        raise InstallError("images are made from packages of Debian, and this is none") from error


def build(mmdebstrap: str, folder: Path) -> None:
    """Make the images in `folder`, once for all clones. Raises InstallError."""
    with cache.sole_installer(folder):
        if cache.is_installed(folder):  # another clone made them meanwhile
            return
        print("making the image for MPI jobs (2 minutes, 350 MB)", flush=True)
        with cache.staged(folder, {"packages": " ".join(PACKAGES)}) as stage:
            _bootstrap(mmdebstrap, stage / "mpi.tar")


def _bootstrap(mmdebstrap: str, tar: Path) -> None:
    sources = next((path for path in SOURCES if Path(path).is_file()), None)
    if sources is None:
        raise InstallError(f"apt has no sources: there is no {' and no '.join(SOURCES)}")
    command = [
        mmdebstrap,
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=Apt::Install-Recommends "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in OMITTED),
        f"--customize-hook=printf '{SSHD!s}' > \"$1/etc/ssh/sshd_config.d/container.conf\"",
        release(),
        str(tar),
        sources,
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:]
        raise InstallError(f"mmdebstrap: {''.join(last)}")

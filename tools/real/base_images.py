"""Builds root file systems of images for tests from Debian's packages, without a registry.

`mmdebstrap` unpacks packages of this machine's Debian release, from its apt sources, into a tar
archive. The path of an image contains a digest of its recipe, so that clones share it. The images:

- `mpi`: OpenMPI, sshd and mpi4py, like images of MPI jobs;
- `torch`: PyTorch for CPUs, with gloo and `torchrun`;
- `debug-tools`: JupyterLab and TensorBoard, from pinned wheels;
- `code-server`: code-server, from its npm package;
- `terminal`: ttyd, from Debian's testing release, since older ones do not contain it;
- `spark`: Spark, from pinned wheels, with Java;
- `python`: replaces the base image of our Dockerfiles; its Python is from a later release, from the
  same mirror.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.real import cache, toolchains
from tools.real.errors import InstallError

REVISION = "1"  # raise it to rebuild the images, e.g. for newer packages
OMITTED = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
SSHD = "UsePAM no\n"
"""Settings of sshd: without PAM, since Debian's PAM modules open an audit session, which a
container does not have."""
SOURCES = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
LIMIT_S = 1800
CAUSE = re.compile(r"^E: |: error processing |No such file")
"""Lines of output that say why a package could not be installed."""
REPOSITORY = Path(__file__).resolve().parents[2]
WHEELS_PYTHON = "3.11"
"""Python version for which wheels are pinned and unpacked: that of Debian 12."""
PROGRAMS = Path(__file__).parent / "image_programs"
SCRIPTS = Path(__file__).parent / "image_builds"


@dataclass(frozen=True)
class Recipe:
    """An image: Debian's packages, patterns of files to omit in addition to OMITTED, settings for
    sshd if it has sshd, and the time and size to build it. ``release``: the Debian release; empty:
    this machine's. ``links``: (path in the image, its target). ``wheels``: a file of the repository
    with pinned wheels, which are unpacked below /opt/wheels; ``builds``: whether some are published
    as sources only; ``programs``: (path, name of a file in ``image_programs``)."""

    packages: tuple[str, ...]
    omitted: tuple[str, ...] = ()
    sshd: str = ""
    cost: str = ""
    release: str = ""
    links: tuple[tuple[str, str], ...] = ()
    wheels: str = ""
    builds: bool = False
    script: str = ""
    programs: tuple[tuple[str, str], ...] = ()

    def hooks(self) -> list[str]:
        """Commands that complete the root file system, whose folder is ``$1``."""
        made = [f'ln -s {target} "$1{path}"' for path, target in self.links]
        for path, name in self.programs:
            made.append(f'install --mode=755 "{PROGRAMS / name}" "$1{path}"')
        if self.wheels:
            uv = toolchains.environment(REPOSITORY) / "bin" / "uv"
            into = f'--target "$1/opt/wheels" --python-version {WHEELS_PYTHON}'
            kinds = "" if self.builds else "--only-binary :all: "
            pinned = f"--require-hashes {kinds}--requirements {self._lock}"
            made.append(f"{uv} pip install --quiet --link-mode copy {into} {pinned}")
        if self.script:
            made.append(f'sh "{SCRIPTS / self.script}" "$1"')
        if self.sshd:
            made.append(f"printf '{self.sshd}' > \"$1/etc/ssh/sshd_config.d/container.conf\"")
        return made

    @property
    def _lock(self) -> Path:
        return REPOSITORY / self.wheels

    def lock_digest(self) -> str:
        """The digest of the pinned wheels; empty without any."""
        return hashlib.sha256(self._lock.read_bytes()).hexdigest() if self.wheels else ""


RECIPES: Mapping[str, Recipe] = {
    "mpi": Recipe(
        ("openmpi-bin", "openssh-server", "python3-mpi4py"), sshd=SSHD, cost="2 minutes, 350 MB"
    ),
    "torch": Recipe(
        ("python3-torch",),
        # Its tests, and graphics drivers, which are indirect dependencies. Python files are kept:
        # when a package is installed, it compiles all files that it lists.
        (
            "/usr/lib/python3/dist-packages/torch/bin/test_*",
            "/usr/lib/*/dri/*",
            "/usr/lib/*/mfx/*",
            "/usr/lib/*/libmfxhw64.so*",
            "/usr/lib/*/libLLVM-*",
        ),
        cost="5 minutes, 900 MB",
    ),
    "debug-tools": Recipe(
        ("python3",),
        cost="2 minutes, 500 MB",
        links=(("/usr/bin/python", "python3"),),
        wheels="tools/real/debug_tools.txt",
        programs=(("/usr/bin/jupyter", "jupyter"), ("/usr/bin/tensorboard", "tensorboard")),
    ),
    "code-server": Recipe(
        ("git",),
        cost="3 minutes, 600 MB",
        wheels="tools/real/code_server.txt",
        script="code-server",
        programs=(("/usr/bin/code-server", "code-server"),),
    ),
    "terminal": Recipe(("ttyd",), cost="1 minute, 150 MB", release="forky"),
    "spark": Recipe(
        ("openjdk-17-jre-headless", "procps", "python3"),
        cost="3 minutes, 700 MB",
        wheels="tools/real/spark.txt",
        builds=True,
        programs=(("/opt/entrypoint.sh", "spark"),),
    ),
    "python": Recipe(
        ("python3.13", "python3.13-venv", "ca-certificates"),
        cost="2 minutes, 120 MB",
        release="trixie",
        links=(("/usr/bin/python", "python3.13"), ("/usr/bin/python3", "python3.13")),
    ),
}
OF_KUBELETS = ("mpi", "torch", "debug-tools", "code-server", "terminal", "spark")
OF_ENGINE = ("python",)


def place(name: str, env: Mapping[str, str]) -> Path:
    """The folder of an image, which may not be built yet. The tar archive in it has the image's
    name."""
    recipe = RECIPES[name]
    machine = (REVISION, platform.machine(), recipe.release or release())
    words = (*machine, *recipe.packages, *OMITTED, *recipe.omitted, recipe.sshd)
    words += tuple(word for link in recipe.links for word in link)
    words += tuple(
        word for path, name in recipe.programs for word in (path, (PROGRAMS / name).read_text())
    )
    if recipe.wheels:
        words += (recipe.lock_digest(),)
    if recipe.script:
        words += ((SCRIPTS / recipe.script).read_text(),)
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
    return cache.shared_root(env) / f"images-{digest}"


def release() -> str:
    """The code name of this machine's release. Raises InstallError."""
    try:
        return platform.freedesktop_os_release()["VERSION_CODENAME"]
    except (OSError, KeyError) as error:
        raise InstallError(
            "images are built from Debian's packages, and this machine does not run Debian"
        ) from error


def missing(env: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """The names of those images that are not built yet."""
    return [name for name in names if not cache.is_installed(place(name, env))]


def mirror(sources: Path) -> str:
    """The address of the first repository in apt's sources, which have one of two formats. Raises
    InstallError."""
    match = re.search(r"^(?:URIs:|deb(?: \[.*\])?) *(\S+)", sources.read_text(), re.MULTILINE)
    if match is None:
        raise InstallError(f"{sources} has no address of a repository")
    return match[1]


def build(mmdebstrap: str, name: str, env: Mapping[str, str]) -> None:
    """Build an image, once for all clones. Raises InstallError."""
    folder, recipe = place(name, env), RECIPES[name]
    with cache.sole_installer(folder):
        if cache.is_installed(folder):  # another clone built it meanwhile
            return
        print(f"building the image {name} ({recipe.cost})", flush=True)
        with cache.staged(folder, {"packages": " ".join(recipe.packages)}) as stage:
            _bootstrap(mmdebstrap, recipe, stage / f"{name}.tar")


def _bootstrap(mmdebstrap: str, recipe: Recipe, tar: Path) -> None:
    sources = next((path for path in SOURCES if Path(path).is_file()), None)
    if sources is None:
        raise InstallError(f"apt has no sources: there is no {' and no '.join(SOURCES)}")
    command = [
        mmdebstrap,
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(recipe.packages)}",
        '--aptopt=Apt::Install-Recommends "false"',
        # Lists of packages of Debian's testing release expire after a week, and mirrors may lag.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in (*OMITTED, *recipe.omitted)),
        # Java's packages link manual pages there, which OMITTED leaves out with their folder.
        '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
        *(f"--customize-hook={hook}" for hook in recipe.hooks()),
        recipe.release or release(),
        str(tar),
        mirror(Path(sources)) if recipe.release else sources,
    ]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=LIMIT_S, env=os.environ
    )
    if done.returncode != 0:
        causes = [each for each in done.stderr.splitlines() if CAUSE.search(each)]
        raise InstallError(f"mmdebstrap: {'; '.join(causes[:5])}")

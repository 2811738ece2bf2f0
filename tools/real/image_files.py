"""Builds SingularityCE, which runs SIF files on process nodes with Apptainer's command line.

    python tools/real/image_files.py           install what is missing (`make sif-tools`)
    python tools/real/image_files.py --where   print the paths as JSON; exit 3 if one is missing

The image of the MPI test is built from Debian's packages (base_images.py).

Apptainer itself is not built, since its Go module is not available everywhere; both are forks of
Singularity. The module's sources are copied and configured first, because the build needs
generated files beside them, and built as its Makefile does, without setuid and network plugins; the
Makefile is not used, since it deletes Go's build cache. 6 minutes of CPU the first time, 120 MB.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import base_images, binaries, cache, command_line, debian, kubelets, toolchains  # noqa: E402 - path above
from tools.real.errors import InstallError  # noqa: E402 - as above

BUILD_REVISION = "1"  # raise it when the same sources are built differently
MODULE = Path("tools") / "go" / "singularity"
NAME = "github.com/sylabs/singularity/v4"
TAGS = "sylog singularity_engine fakeroot_engine"
PROGRAMS = {
    "gcc": "gcc",
    "mksquashfs": "squashfs-tools",
    "squashfuse": "squashfuse",
    "busybox": "busybox-static",
    "mmdebstrap": "mmdebstrap",
}
"""Program -> the Debian package that contains it. busybox is the only program of most images."""
MPI = "mpi"
OPTIONS = ("--without-suid", "--without-libsubid", "--without-network", "--without-seccomp")
DATA = {
    "etc/nvliblist.conf": "nvliblist.conf",
    "etc/rocmliblist.conf": "rocmliblist.conf",
    "etc/remote.yaml": "remote.yaml",
    "internal/pkg/syecl/syecl.toml.example": "ecl.toml",
}
"""File of the module -> its name in the folder of the configuration."""


def directory() -> Path:
    """The directory of the program for this working tree; it may not be built yet."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((REPOSITORY / MODULE / name).read_bytes())
    return cache.shared_root(os.environ) / f"singularity-{digest.hexdigest()[:16]}"


def programs() -> dict[str, str | None]:
    """Program -> its path; None if it is missing."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *kubelets.SYSTEM_PATHS))
    return {name: shutil.which(name, path=path) for name in PROGRAMS}


def where() -> str:
    """One line of JSON with the paths. Raises InstallError if something is missing."""
    found = programs()
    missing = [PROGRAMS[name] for name, path in found.items() if path is None]
    if not cache.is_installed(directory()):
        missing.append("singularity")
    missing += [f"the image {name}" for name in base_images.missing(os.environ, (MPI,))]
    if missing:
        raise InstallError(f"{', '.join(missing)} missing: run `make sif-tools`")
    program = directory() / "bin" / "singularity"
    needed = {name: found[name] for name in ("busybox", "mksquashfs")}
    image = base_images.place(MPI, os.environ) / f"{MPI}.tar"
    return json.dumps({"singularity": str(program), **needed, "mpi_image": str(image)})


def install() -> None:
    """Install and build what is missing. Raises InstallError."""
    if missing := [PROGRAMS[name] for name, path in programs().items() if path is None]:
        debian.install(*missing)
    place = directory()
    if not cache.is_installed(place):
        build(place)
    if base_images.missing(os.environ, (MPI,)):
        base_images.build(str(programs()["mmdebstrap"]), MPI, os.environ)
    print(f"SingularityCE is installed: {where()}")


def build(place: Path) -> None:
    """Build SingularityCE into ``place``, once for all clones. Raises InstallError."""
    venv = toolchains.environment(REPOSITORY)
    go = toolchains.find(toolchains.GO, venv)
    if go is None:
        go = toolchains.install_wheel(toolchains.GO, REPOSITORY, venv)
    release = binaries.required_version((REPOSITORY / MODULE / "go.mod").read_text(), NAME)
    with cache.sole_installer(place):
        if cache.is_installed(place):  # another clone has built it
            return
        print(f"building SingularityCE {release} (6 minutes of CPU, 120 MB)", flush=True)
        with (
            cache.staged(place, {"singularity": release, "go": go}) as stage,
            tempfile.TemporaryDirectory(prefix="strom-singularity-") as folder,
        ):
            source = Path(folder) / "source"
            shutil.copytree(_module(go), source, copy_function=shutil.copyfile)
            for path in (source, *source.rglob("*")):
                path.chmod(0o755)  # the module cache is read-only and drops modes
            _compile(go, source, stage, release.removeprefix("v"))


def _module(go: str) -> Path:
    """The module's folder in Go's module cache; its digest is in go.sum."""
    found = _run([go, "mod", "download", "-json", NAME], REPOSITORY / MODULE)
    return Path(json.loads(found)["Dir"])


def _compile(go: str, source: Path, stage: Path, release: str) -> None:
    (source / "VERSION").write_text(release)
    configure = ["bash", "./mconfig", *OPTIONS, "--without-squashfuse", "-V", release]
    # The paths follow the program when it is moved, which holds for builds without setuid.
    _run([*configure, "-p", str(stage), "-b", str(source / "builddir")], source)
    generated = {"BUILDDIR": str(source / "builddir"), "GO_TOOL": go, "GO_BUILD_TAGS": TAGS}
    _run([go, "generate"], source / "internal" / "pkg" / "buildcfg", generated)
    flags = [
        "-buildmode=pie",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags=-s -w",
        f"-tags={TAGS}",
    ]
    parts = {"cmd/singularity": "bin", "cmd/starter": "libexec/singularity/bin"}
    for package, folder in parts.items():
        target = stage / folder
        target.mkdir(parents=True)
        print(f"  {package}", flush=True)
        _run(["nice", go, "build", *flags, "-o", str(target) + os.sep, f"./{package}"], source)
    settings = stage / "etc" / "singularity"
    settings.mkdir(parents=True)
    (stage / "var" / "singularity" / "mnt" / "session").mkdir(parents=True)
    (settings / "capability.json").touch()
    for name, target_name in DATA.items():
        shutil.copyfile(source / name, settings / target_name)
    _run([go, "run", "etc/conf/gen.go", str(settings / "singularity.conf")], source)


def _run(command: list[str], folder: Path, more: dict[str, str] | None = None) -> str:
    """Run a step of the build; returns its output. Raises InstallError with its last line."""
    # Its part in C, which sets up namespaces before Go's threads start, needs cgo.
    environment = {**binaries.go_environment(os.environ), "CGO_ENABLED": "1", **(more or {})}
    done = subprocess.run(
        command, cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise InstallError(f"{' '.join(command[:3])} failed: {lines[-1]}")
    return done.stdout


def main() -> int:
    """The command-line tool. Returns the exit status."""
    return command_line.run("sif-tools", __doc__, where, install)


if __name__ == "__main__":
    sys.exit(main())

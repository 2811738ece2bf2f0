"""Installs what tests of images need: Docker's engine, Compose, the Dockerfiles' base image.

    python tools/real/engine.py           install missing parts (`make engine-tools`)
    python tools/real/engine.py --where   print the paths as JSON; exit 3 if a part is missing

Separate from the other real parts, like the kubelets, since few tests need it and it needs root.
Compose takes 3 minutes of CPU the first time (60 MB), the base image 2 minutes (base_images.py).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import base_images, binaries, cache, command_line, debian, kubelets, toolchains  # noqa: E402 - path above
from tools.real.errors import InstallError  # noqa: E402 - as above

BUILD_REVISION = "1"  # raise it when the same sources are built differently
MODULE = Path("tools") / "go" / "docker-compose"
COMPOSE = "github.com/docker/compose/v2"
PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "slirp4netns": "slirp4netns",
    "busybox": "busybox-static",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "mmdebstrap": "mmdebstrap",
}
"""Program -> the Debian package that contains it."""


def find_programs() -> dict[str, str | None]:
    """Program -> its path; None if it is missing."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *kubelets.SYSTEM_PATHS))
    found: dict[str, str | None] = {name: shutil.which(name, path=path) for name in PROGRAMS}
    if (busybox := found["busybox"]) is not None and not kubelets.is_static(Path(busybox)):
        found["busybox"] = None
    return found


def missing_packages(found: dict[str, str | None]) -> list[str]:
    """The Debian packages of missing programs."""
    return sorted({PROGRAMS[name] for name, path in found.items() if path is None})


def directory() -> Path:
    """The directory of Compose for this working tree's Go module; it may not be built yet."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    for name in ("go.mod", "go.sum"):
        digest.update((REPOSITORY / MODULE / name).read_bytes())
    return cache.shared_root(os.environ) / f"compose-{digest.hexdigest()[:16]}"


def build(place: Path) -> None:
    """Build Compose as a plugin of `docker` into `place`, once for all clones."""
    venv = toolchains.environment(REPOSITORY)
    go = toolchains.find(toolchains.GO, venv)
    if go is None:
        go = toolchains.install_wheel(toolchains.GO, REPOSITORY, venv)
    module = REPOSITORY / MODULE
    version = binaries.required_version((module / "go.mod").read_text(), COMPOSE)
    with cache.sole_installer(place):
        if cache.is_installed(place):  # another clone has built it
            return
        print(f"building docker compose {version}", flush=True)
        with cache.staged(place, {"compose": version, "go": go}) as stage:
            flags = f"-s -w -X {COMPOSE}/internal.Version={version}"
            binaries.go_build(go, module, stage, flags, os.environ)
            (stage / "cmd").rename(
                stage / "docker-compose"
            )  # Go names the program after its package


def where() -> str:
    """One line of JSON with the paths. Raises InstallError, which names missing parts."""
    found = find_programs()
    missing = missing_packages(found)
    place = directory()
    if not cache.is_installed(place):
        missing.append("docker compose")
    wanted = base_images.missing(os.environ, base_images.OF_ENGINE)
    missing += [f"the image {name}" for name in wanted]
    if missing:
        raise InstallError(f"{', '.join(missing)} missing: run `make engine-tools`")
    if os.geteuid() != 0:
        raise InstallError("the container engine needs root: run the tests as root")
    paths = {name: path for name, path in found.items() if name != "mmdebstrap"}
    return json.dumps(
        {
            **paths,
            "compose": str(place / "docker-compose"),
            "python_image": str(base_images.place("python", os.environ) / "python.tar"),
            "cache": str(cache.shared_root(os.environ)),
        }
    )


def install() -> None:
    """Install missing parts. Raises InstallError."""
    if packages := missing_packages(find_programs()):
        debian.install(*packages)
    found = find_programs()
    if packages := missing_packages(found):
        raise InstallError(f"installed, but not found: {', '.join(packages)}")
    place = directory()
    if not cache.is_installed(place):
        build(place)
    for name in base_images.missing(os.environ, base_images.OF_ENGINE):
        base_images.build(str(found["mmdebstrap"]), name, os.environ)
    print(f"the engine is installed: {where()}")


def main() -> int:
    """The command-line tool. Returns the exit status."""
    return command_line.run("engine-tools", __doc__, where, install)


if __name__ == "__main__":
    sys.exit(main())

"""Installs what real kubelets need: runc and, built from their Go modules, containerd, the kubelet
and Kubernetes' scheduler, which binds pods that are not ours.

    python tools/real/kubelets.py           install what is missing (`make kubelet-tools`)
    python tools/real/kubelets.py --where   print the paths as JSON; exit 3 if something is missing

Separate from the other real parts, because few tests need kubelets, kubelets need root, and the
kubelet is a separate build (22 s if `make real-tools` has just built the same version of
Kubernetes, else 5 minutes of CPU; 150 MB). containerd is built, too (3 minutes, 70 MB), because
that of Debian 12 does not pass the devices of ResourceClaims to containers. Images are built from
Debian's packages (base_images.py).
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

from tools.real import base_images, binaries, cache, command_line, debian, toolchains  # noqa: E402 - path above
from tools.real.errors import InstallError  # noqa: E402 - as above

BUILD_REVISION = "1"  # raise it when the same sources are built differently
MODULES = Path("tools") / "go"
BUILT = {"kubelet": "k8s.io/kubernetes", "containerd": "github.com/containerd/containerd"}
"""Built program -> the Go module that has its version. Its folder in ``MODULES`` has its name."""
PROGRAMS = {
    "runc": "runc",
    "busybox": "busybox-static",
    "unshare": "util-linux",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "g++": "g++",
}
"""Program -> the Debian package that contains it."""
OF_INSTALLER = ("ip", "mmdebstrap", "g++")
"""Programs that nodes do not run."""
CNI_FOLDERS = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
CNI_PLUGINS = ("bridge", "host-local", "loopback")
CNI_PACKAGE = "containernetworking-plugins"
SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""The folders of runc and ip in Debian, which are not on the PATH of an ordinary user."""


def find_programs() -> dict[str, str | None]:
    """Program -> its path; None if it is missing. `cni` is the folder of the CNI plugins."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *SYSTEM_PATHS))
    found: dict[str, str | None] = {name: shutil.which(name, path=path) for name in PROGRAMS}
    if (busybox := found["busybox"]) is not None and not is_static(Path(busybox)):
        found["busybox"] = None
    complete = (
        folder
        for folder in CNI_FOLDERS
        if all((Path(folder) / plugin).is_file() for plugin in CNI_PLUGINS)
    )
    return {**found, "cni": next(complete, None)}


def is_static(program: Path) -> bool:
    """Whether an ELF program runs without a dynamic loader, as the only file of an image must."""
    with program.open("rb") as file:
        head = file.read(4096)
    return head.startswith(b"\x7fELF") and b"/ld-" not in head


def missing_packages(found: dict[str, str | None]) -> list[str]:
    """The Debian packages of missing programs."""
    packages = {**PROGRAMS, "cni": CNI_PACKAGE}
    return sorted({packages[name] for name, path in found.items() if path is None})


def ensure_programs() -> dict[str, str]:
    """Program -> its path. Installs missing Debian packages if the user is root. Raises
    InstallError."""
    found = find_programs()
    if packages := missing_packages(found):
        debian.install(*packages)
        found = find_programs()
    if packages := missing_packages(found):
        raise InstallError(f"installed, but not found: {', '.join(packages)}")
    return {name: path for name, path in found.items() if path is not None}


def directory(name: str) -> Path:
    """The directory of what is built from a Go module of this working tree; it may not be built
    yet."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    for file in ("go.mod", "go.sum"):
        digest.update((REPOSITORY / MODULES / name / file).read_bytes())
    return cache.shared_root(os.environ) / f"{name}-{digest.hexdigest()[:16]}"


def build(name: str) -> None:
    """Build the kubelet or containerd, once for all clones."""
    venv = toolchains.environment(REPOSITORY)
    go = toolchains.find(toolchains.GO, venv)
    if go is None:
        go = toolchains.install_wheel(toolchains.GO, REPOSITORY, venv)
    place, module = directory(name), REPOSITORY / MODULES / name
    version = binaries.required_version((module / "go.mod").read_text(), BUILT[name])
    with cache.sole_installer(place):
        if cache.is_installed(place):  # another clone has built it
            return
        print(f"building {name} {version}", flush=True)
        with cache.staged(place, {name: version, "go": go}) as stage:
            flags = binaries.kubernetes_flags(version) if name == "kubelet" else "-s -w"
            binaries.go_build(go, module, stage, flags, os.environ)


def describe(programs: dict[str, str]) -> str:
    """One line of JSON with the paths."""
    paths = {name: path for name, path in programs.items() if name not in OF_INSTALLER}
    images = {
        f"{name.replace('-', '_')}_image": str(base_images.place(name, os.environ) / f"{name}.tar")
        for name in base_images.OF_KUBELETS
    }
    kubelet = directory("kubelet")
    built = {
        "kubelet": str(kubelet / "kubelet"),
        "scheduler": str(kubelet / "kube-scheduler"),
        "containerd": str(directory("containerd") / "containerd"),
    }
    return json.dumps({**built, **images, **paths})


def where() -> str:
    """One line of JSON with the paths. Raises InstallError, which names missing parts."""
    found = find_programs()
    missing = missing_packages(found)
    missing += [f"{name} of its Go module" for name in _unbuilt()]
    missing += [
        f"the image {name}" for name in base_images.missing(os.environ, base_images.OF_KUBELETS)
    ]
    if missing:
        raise InstallError(f"{', '.join(missing)} missing: run `make kubelet-tools`")
    if os.geteuid() != 0:
        raise InstallError("kubelets need root: run the tests as root")
    return describe({name: path for name, path in found.items() if path is not None})


def _unbuilt() -> list[str]:
    return [name for name in BUILT if not cache.is_installed(directory(name))]


def install() -> None:
    """Install missing parts. Raises InstallError."""
    programs = ensure_programs()
    for name in _unbuilt():
        build(name)
    for name in base_images.missing(os.environ, base_images.OF_KUBELETS):
        base_images.build(programs["mmdebstrap"], name, os.environ)
    print(f"the kubelet is installed: {describe(programs)}")


def main() -> int:
    """The command-line tool. Returns the exit status."""
    return command_line.run("kubelet-tools", __doc__, where, install)


if __name__ == "__main__":
    sys.exit(main())

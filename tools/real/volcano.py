"""Builds Volcano's own end-to-end suites and its command line, for tests against our services.

    python tools/real/volcano.py           build what is missing (`make volcano-tools`)
    python tools/real/volcano.py --where   print the paths as JSON; exit 3 if something is missing

They are built from a copy of the published module with the versions that its own go.sum pins; this
repository contains none of its files. Two things are added to the copy: the API module, which a
checkout has in a folder that the published module lacks, and a constant that the suites use and no
published API module has.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import binaries, cache, command_line, toolchains  # noqa: E402 - needs the path above
from tools.real.errors import InstallError  # noqa: E402 - as above

BUILD_REVISION = "1"  # raise it when the same sources are built or stored differently
FOLDER = REPOSITORY / "tools" / "go" / "volcano"
VOLCANO, APIS = "volcano.sh/volcano", "volcano.sh/apis"
STAGED_APIS = Path("staging") / "src" / APIS
"""The folder of the API module in a checkout, to which its go.mod refers."""
ADDED = "queue_allocation_gate.go"
ADDED_TO = STAGED_APIS / "pkg" / "apis" / "scheduling" / "v1beta1" / ADDED
SUITES = (
    "admission",
    "cronjob",
    "gangevict",
    "hypernode",
    "jobp",
    "jobseq",
    "schedulingaction",
    "schedulingbase",
    "schedulinggates",
    "stress",
    "vcctl",
)
"""The suites in test/e2e that need neither kubelets nor Volcano's agent nor a sharded scheduler."""
PROGRAMS = ("./cmd/cli", "github.com/onsi/ginkgo/v2/ginkgo", "k8s.io/kubernetes/cmd/kube-scheduler")
"""Further programs: Volcano's command line, the suites' runner, the scheduler for other pods."""
CONFIGURATION = Path("installer/helm/chart/volcano/config/volcano-scheduler-ci.conf")
"""The scheduler's configuration under which Volcano runs its suites."""


def directory() -> Path:
    """The directory of the programs for this working tree's pins; it may not be built yet."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    digest.update(repr(SUITES).encode())
    for name in ("go.mod", "go.sum", ADDED):
        digest.update((FOLDER / name).read_bytes())
    return cache.shared_root(os.environ) / f"volcano-{digest.hexdigest()[:16]}"


def version(module: str = VOLCANO) -> str:
    """The pinned version of a module."""
    return binaries.required_version((FOLDER / "go.mod").read_text(), module)


def install() -> None:
    """Build the suites if they are missing, once for all clones. Raises InstallError."""
    place = directory()
    if cache.is_installed(place):
        print(f"Volcano's suites are installed: {where()}")
        return
    venv = toolchains.environment(REPOSITORY)
    go = toolchains.find(toolchains.GO, venv)
    if go is None:
        go = toolchains.install_wheel(toolchains.GO, REPOSITORY, venv)
    with cache.sole_installer(place):
        if not cache.is_installed(place):  # else another clone has built it
            print(f"building the suites of Volcano {version()} (20 minutes, 2 GB)", flush=True)
            with cache.staged(place, {"volcano": version(), "go": go}) as stage:
                _build(go, stage)
    print(f"Volcano's suites are installed: {where()}")


def _build(go: str, stage: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="stromboli-go-") as folder:
        copied = Path(folder)
        for module, place in ((VOLCANO, copied), (APIS, copied / STAGED_APIS)):
            pinned = f"{module}@{version(module)}"
            binaries.copy_files(binaries.module_source(go, FOLDER, pinned), place)
        binaries.copy_files(FOLDER / ADDED, copied / ADDED_TO)
        binaries.copy_files(copied / CONFIGURATION, stage / CONFIGURATION.name)
        suites = [f"./test/e2e/{suite}" for suite in SUITES]
        verb = ("test", "-c", "-vet=off")
        binaries.go_build(go, copied, stage, "-s -w", os.environ, packages=suites, verb=verb)
        binaries.go_build(go, copied, stage, "-s -w", os.environ, packages=PROGRAMS)
        (stage / "cli").rename(stage / "vcctl")  # Go names a program after its package


def where() -> str:
    """One line of JSON with the directory and the version. Raises InstallError if the suites are
    missing."""
    if not cache.is_installed(directory()):
        raise InstallError("Volcano's suites are missing: run `make volcano-tools`")
    return json.dumps({"directory": str(directory()), "version": version()})


def main() -> int:
    """The command-line tool. Returns the exit status."""
    return command_line.run("volcano-tools", __doc__, where, install)


if __name__ == "__main__":
    sys.exit(main())

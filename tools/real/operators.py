"""Builds other projects' programs that tests run beside ours: controllers that create pods for our
scheduler, and an identity provider for logins to the console.

    python tools/real/operators.py           build what is missing (`make operator-tools`)
    python tools/real/operators.py --where   print the paths as JSON; exit 3 if something is missing

Each is built as released, from a separate Go module in tools/go, because each pins other versions
of Kubernetes' libraries. Its definitions and examples are copied from its module and stored with
the programs, so this repository contains none of its files. A build takes minutes of CPU the first
time (the cost is printed before it starts), and seconds if Go's build cache is warm.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tools.real import binaries, cache, command_line, toolchains  # noqa: E402 - needs the path above
from tools.real.errors import InstallError  # noqa: E402 - as above

BUILD_REVISION = "1"  # raise it when the same sources are built or stored differently


@dataclass(frozen=True)
class Operator:
    """A controller of another project. ``name``: its folder in tools/go; ``packages``: the packages
    of its module that are built, the controller first ("": the module itself); ``files``: folders
    and files of its module that are stored with the programs, with their paths; ``cost``: CPU time
    and disk of a build without any cache; ``has_c``: it has C sources; ``added``: our file in its
    folder -> the path in its module, of files that the published module lacks."""

    name: str
    module: str
    packages: tuple[str, ...]
    files: tuple[str, ...]
    cost: str
    has_c: bool = False
    added: tuple[tuple[str, str], ...] = ()

    @property
    def program(self) -> str:
        """The name of the controller: Go names a program after its package."""
        return self.paths()[0].rpartition("/")[2]

    def paths(self) -> tuple[str, ...]:
        """What is built, as Go names it."""
        return tuple(f"{self.module}/{it}" if it else self.module for it in self.packages)


OPERATORS = (
    Operator(
        "training-operator",
        "github.com/kubeflow/training-operator",
        ("cmd/training-operator.v1",),
        ("manifests/base", "examples/pytorch/simple.yaml", "examples/tensorflow/simple.yaml"),
        "2 minutes, 50 MB",
    ),
    Operator(
        "mpi-operator",
        "github.com/kubeflow/mpi-operator",
        ("cmd/mpi-operator",),
        ("manifests/base", "examples/v2beta1/pi/pi.yaml"),
        "2 minutes, 50 MB",
    ),
    Operator(
        "kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        ("",),
        ("config/crd/bases", "config/samples/ray-cluster.volcano-scheduler.yaml"),
        "2 minutes, 60 MB",
    ),
    Operator(
        "jobset",
        "sigs.k8s.io/jobset",
        ("",),
        ("config/components/crd/bases", "config/components/webhook/manifests.yaml"),
        "2 minutes, 60 MB",
    ),
    Operator(
        "spark-operator",
        "github.com/kubeflow/spark-operator/v2",
        ("cmd/operator",),
        ("charts/spark-operator-chart", "examples/spark-pi-volcano.yaml"),
        "2 minutes, 80 MB",
    ),
    Operator(
        "argo-workflows",
        "github.com/argoproj/argo-workflows/v3",
        ("cmd/workflow-controller", "cmd/argoexec"),
        ("manifests/base/crds/minimal", "manifests/quick-start/base/executor"),
        "10 minutes, 250 MB",
        added=(("signal_linux.go", "workflow/executor/osspecific/signal_linux.go"),),
    ),
    Operator(
        "dex",
        "github.com/dexidp/dex",
        ("cmd/dex",),
        ("web",),
        "4 minutes, 60 MB, with a C compiler",
        has_c=True,  # for SQLite, without which its command does not compile
    ),
)


def directory(operator: Operator) -> Path:
    """The directory of an operator for this working tree's Go module; it may not be built yet."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    digest.update(repr(operator).encode())
    for name in ("go.mod", "go.sum", *dict(operator.added)):
        digest.update((module_of(operator) / name).read_bytes())
    root = cache.shared_root(os.environ)
    return root / f"{operator.name}-{digest.hexdigest()[:16]}"


def module_of(operator: Operator) -> Path:
    """The folder in tools/go of the Go module that builds an operator."""
    return REPOSITORY / "tools" / "go" / operator.name


def version(operator: Operator) -> str:
    """The release of the operator that is built."""
    go_mod = (module_of(operator) / "go.mod").read_text()
    return binaries.required_version(go_mod, operator.module)


def build(operator: Operator) -> None:
    """Build an operator into its directory, once for all clones. Raises InstallError."""
    venv = toolchains.environment(REPOSITORY)
    go = toolchains.find(toolchains.GO, venv)
    if go is None:
        go = toolchains.install_wheel(toolchains.GO, REPOSITORY, venv)
    place = directory(operator)
    with cache.sole_installer(place):
        if cache.is_installed(place):  # another clone has built it
            return
        release = version(operator)
        print(f"building {operator.name} {release} ({operator.cost})", flush=True)
        with cache.staged(place, {operator.name: release, "go": go}) as stage:
            module, has_c = module_of(operator), operator.has_c
            source = binaries.module_source(go, module, operator.module)
            if operator.added:
                _build_completed(go, operator, source, stage)
            else:
                binaries.go_build(go, module, stage, "-s -w", os.environ, has_c=has_c)
            for name in operator.files:
                binaries.copy_files(source / name, stage / name)


def _build_completed(go: str, operator: Operator, source: Path, stage: Path) -> None:
    """Build a copy of the operator's module, with the files that it lacks and the versions that its
    own go.sum pins. (``go build -overlay`` cannot replace files in Go's module cache.) Raises
    InstallError."""
    with tempfile.TemporaryDirectory(prefix="stromboli-go-") as folder:
        copied = Path(folder)
        binaries.copy_files(source, copied)
        for ours, path in operator.added:
            binaries.copy_files(module_of(operator) / ours, copied / path)
        packages = [f"./{package}" for package in operator.packages]
        binaries.go_build(go, copied, stage, "-s -w", os.environ, packages=packages)


def where() -> str:
    """One line of JSON with the directory, the program and the release of each operator. Raises
    InstallError, which names missing operators."""
    missing = [each.name for each in OPERATORS if not cache.is_installed(directory(each))]
    if missing:
        raise InstallError(f"{', '.join(missing)} missing: run `make operator-tools`")
    return json.dumps(
        {
            each.name: {
                "directory": str(directory(each)),
                "program": str(directory(each) / each.program),
                "version": version(each),
            }
            for each in OPERATORS
        }
    )


def install() -> None:
    """Build missing operators. Raises InstallError."""
    for operator in OPERATORS:
        if not cache.is_installed(directory(operator)):
            build(operator)
    print(f"the operators are installed: {where()}")


def main() -> int:
    """The command-line tool. Returns the exit status."""
    return command_line.run("operator-tools", __doc__, where, install)


if __name__ == "__main__":
    sys.exit(main())

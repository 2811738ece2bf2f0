"""Builds etcd, the Kubernetes programs, KWOK, Helm, Prometheus and the reader of compose files from
the Go modules that tools/go pins.

There are several modules, because KWOK does not build with the libraries of Kubernetes 1.34, and
Helm pins other versions than Kubernetes itself. go.sum contains all digests, which the Go command
checks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.real import cache
from tools.real.errors import InstallError

PROGRESS_EVERY_S = 15
PROMETHEUS_TAGS = "remove_all_sd"  # without the clients of cloud providers, which no target needs


def required_version(go_mod: str, module: str) -> str:
    """The version of `module` that a go.mod requires, such as v1.34.4."""
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise InstallError(f"go.mod does not require {module}: restore it from the repository")
    return match[1]


def kubernetes_flags(version: str) -> str:
    """Linker flags that set the version of the programs; a plain build reports v0.0.0."""
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = "-X k8s.io/component-base/version"
    return f"-s -w {stamp}.gitVersion={version} {stamp}.gitMajor={major} {stamp}.gitMinor={minor}"


def helm_flags(go_mod: str) -> str:
    """Linker flags that set Helm's version and the Kubernetes version that it assumes for charts.

    A plain build assumes Kubernetes 1.20 if it does not query a cluster; current charts do not
    support that version.
    """
    minor = required_version(go_mod, "k8s.io/client-go").removeprefix("v0.").split(".")[0]
    knows = [
        f"-X helm.sh/helm/v3/pkg/{package}.k8sVersionM{part}"
        for package in ("chartutil", "lint/rules")
        for part in ("ajor=1", f"inor={minor}")
    ]
    version = required_version(go_mod, "helm.sh/helm/v3")
    return " ".join(["-s -w", f"-X helm.sh/helm/v3/internal/version.version={version}", *knows])


def go_environment(env: Mapping[str, str], *, has_c: bool = False) -> dict[str, str]:
    """The user's environment without variables that would change the target or fetch another Go.
    ``has_c``: the program has C sources, so a C compiler is needed."""
    kept = {name: value for name, value in env.items() if name not in {"GOOS", "GOARCH", "GOBIN"}}
    cgo = "1" if has_c else "0"
    return {**kept, "CGO_ENABLED": cgo, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def build(go: str, repository: Path, bin_dir: Path, env: Mapping[str, str]) -> None:
    """Build all of cache.BINARIES into the existing directory `bin_dir`.

    About 9 minutes on two cores the first time, seconds once Go's build cache is warm. Runs at low
    priority, so that the machine stays usable.
    """
    modules = repository / "tools" / "go"
    version = required_version((modules / "go.mod").read_text(), "k8s.io/kubernetes")
    print("  compose-go, kwok, kwokctl", flush=True)
    go_build(go, modules / "compose", bin_dir, "-s -w", env)
    (bin_dir / "cmd").rename(bin_dir / "compose-go")  # Go names a program after its package
    go_build(go, modules / "kwok", bin_dir, "-s -w", env)
    print("  helm", flush=True)
    go_build(
        go, modules / "helm", bin_dir, helm_flags((modules / "helm" / "go.mod").read_text()), env
    )
    print("  prometheus", flush=True)
    go_build(go, modules / "prometheus", bin_dir, "-s -w", env, PROMETHEUS_TAGS)
    print("  etcd, kube-apiserver, kube-controller-manager, kubectl", flush=True)
    go_build(go, modules, bin_dir, kubernetes_flags(version), env)
    (bin_dir / "server").rename(bin_dir / "etcd")  # as above
    built = {path.name for path in bin_dir.iterdir()}
    if missing := sorted(set(cache.BINARIES) - built):
        raise InstallError(f"the build did not produce {', '.join(missing)}: check tools/go/go.mod")


def go_build(
    go: str,
    module: Path,
    bin_dir: Path,
    link_flags: str,
    env: Mapping[str, str],
    tags: str = "",
    packages: Sequence[str] = ("tool",),
    *,
    has_c: bool = False,
    verb: Sequence[str] = ("build",),
) -> None:
    """Build packages of a Go module, by default its tools, into a directory, at low priority.
    ``has_c``: see ``go_environment``; ``verb``: Go's command. Raises InstallError."""
    command = ["nice", go, *verb, "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += [f"-ldflags={link_flags}", f"-tags={tags}", "-o", f"{bin_dir}{os.sep}", *packages]
    running = subprocess.Popen(
        command,
        cwd=module,
        env=go_environment(env, has_c=has_c),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    reporter = threading.Event()
    ticker = threading.Thread(target=_report, args=(lines, reporter), daemon=True)
    ticker.start()
    try:
        assert running.stderr is not None
        lines.extend(line.rstrip() for line in running.stderr)
        status = running.wait()
    finally:
        reporter.set()
        if running.poll() is None:
            running.terminate()
            running.wait()
    if status != 0:
        raise InstallError(f"go build failed: {failure(lines)}")


def module_source(go: str, folder: Path, module: str) -> Path:
    """The folder in Go's module cache of a module that the go.sum in ``folder`` pins, downloaded if
    it is not there. ``module``: its path, with or without a version. Raises InstallError."""
    answer = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=folder,
        env=go_environment(os.environ),
        check=False,
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        reason = failure([*answer.stderr.splitlines(), *answer.stdout.splitlines()])
        raise InstallError(f"go mod download failed: {reason}")
    return Path(json.loads(answer.stdout)["Dir"])


def copy_files(source: Path, target: Path) -> None:
    """Copy a file, or a folder recursively, without the read-only modes of the module cache."""
    files = [source] if source.is_file() else [it for it in source.rglob("*") if it.is_file()]
    for file in files:
        place = target / file.relative_to(source) if file != source else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)


def _report(lines: list[str], finished: threading.Event) -> None:
    started = time.monotonic()
    while not finished.wait(PROGRESS_EVERY_S):
        fetched = sum(line.startswith("go: downloading") for line in lines)
        elapsed_s = int(time.monotonic() - started)
        compiled = len(lines) - fetched
        print(
            f"    {elapsed_s} s: {fetched} modules fetched, {compiled} packages compiled",
            flush=True,
        )


def failure(lines: list[str]) -> str:
    """The line with the reason in the output of a failed `go build -v`."""
    said = [line for line in lines if not line.startswith("go: downloading") and " " in line]
    error_lines = [
        line for line in said if re.search(r"error|cannot|no such|verifying|go:|:\d+:", line)
    ]
    return (error_lines or said or lines or ["no message"])[-1]

"""The directories of the real parts: one per recipe, shared by all clones of one user.

The recipe is everything that determines what is installed: the Go modules with their sums, the
Kafka jars with their digests, the build flags and the platform. Its digest names the directory, so
versions never mix, and clones with the same versions share one build. A complete directory is moved
to its path by one rename, so there are no partial installations.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BINARIES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kwok",
    "kwokctl",
    "helm",
    "compose-go",
    "prometheus",
)
RECIPE_FILES = (
    "tools/go/go.mod",
    "tools/go/go.sum",
    "tools/go/kwok/go.mod",
    "tools/go/kwok/go.sum",
    "tools/go/helm/go.mod",
    "tools/go/helm/go.sum",
    "tools/go/compose/go.mod",
    "tools/go/compose/go.sum",
    "tools/go/prometheus/go.mod",
    "tools/go/prometheus/go.sum",
    "tools/kafka/pom.xml",
    "tools/kafka/jars.txt",
)
BUILD_REVISION = "1"  # raise it when binaries.py builds the same sources differently


def shared_root(env: Mapping[str, str]) -> Path:
    """The parent directory of all recipes: STROM_CACHE, else the user's cache directory."""
    if chosen := env.get("STROM_CACHE"):
        return Path(chosen).expanduser() / "real"
    base = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "stromboli" / "real"


def recipe_digest(repository: Path) -> str:
    """The digest of the recipe of this working tree and platform: 16 hexadecimal digits."""
    digest = hashlib.sha256(f"{BUILD_REVISION} {sys.platform} {platform.machine()}\n".encode())
    for name in RECIPE_FILES:
        content = (repository / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def directory(repository: Path, env: Mapping[str, str]) -> Path:
    """The directory of this working tree's parts, which may not be installed yet."""
    return shared_root(env) / recipe_digest(repository)


def is_installed(place: Path) -> bool:
    """Whether `place` contains a complete installation, and is not just a directory."""
    return (place / "parts.json").is_file()


def describe(place: Path, java: str) -> str:
    """One line of JSON with the paths that are needed to start the parts."""
    paths = {"dir": place, "java": java, "bin": place / "bin", "libs": place / "kafka" / "libs"}
    return json.dumps({name: str(path) for name, path in paths.items()})


@contextmanager
def sole_installer(place: Path) -> Iterator[bool]:
    """Hold the recipe's lock; yields False if another process held it first and this one waited.

    The kernel releases the lock when the process ends, even if it is killed.
    """
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / f".{place.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            print("another process is installing the same parts; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield False


@contextmanager
def staged(place: Path, contents: Mapping[str, object]) -> Iterator[Path]:
    """A directory to fill, which becomes `place` at the end and is removed on any error.

    Call it within `sole_installer`, since it also removes the leftovers of killed installations.
    `contents` is written to parts.json, which marks the installation as complete.
    """
    for leftover in place.parent.glob(f".{place.name}.part-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{place.name}.part-", dir=place.parent))
    try:
        yield stage
        (stage / "parts.json").write_text(json.dumps(contents, indent=1) + "\n")
        stage.chmod(
            0o755
        )  # mkdtemp creates a private directory; others may share the cache of a build machine
        shutil.rmtree(
            place, ignore_errors=True
        )  # a directory without parts.json is no complete installation
        os.rename(stage, place)
    finally:
        shutil.rmtree(stage, ignore_errors=True)

"""Resources and capabilities of this machine for process nodes."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from stromboli.embedded.processes import launcher_client
from stromboli.embedded.processes.core import addresses, image_files
from stromboli.embedded.processes.disk import HOSTS, LOOKUP
from stromboli.embedded.processes.launcher import isolated_root
from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.output import Output
from stromboli.shared import keys
from stromboli.shared.formats import units

RUNNER = "process"
PODS_OF_A_NODE = "110"
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables that pods inherit from the node's environment; an image would set them. No others are
passed."""


VISIBLE = (
    *("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin", "/snap"),
    *("/sys", "/usr", "/etc/resolv.conf", sys.base_prefix, sys.prefix),
)
"""Paths that isolated containers see: the system and this Python environment. ``/etc/resolv.conf``
is often a link to another folder."""


class UnsupportedMachineError(Exception):
    """This machine cannot run pods as processes; the message has the reason."""


def check() -> None:
    """Raise UnsupportedMachineError if process nodes cannot run here."""
    if platform.system() != "Linux":
        raise UnsupportedMachineError(
            f"process nodes need Linux, and this is {platform.system()}; simulated nodes run on "
            "every system: strom up --nodes 4"
        )


async def view() -> tuple[str, str]:
    """Return the best available view for containers, and why no better one is available (empty if
    best).

    Each view is tested with a process, because many settings determine whether namespaces are
    allowed.
    """
    reason = ""
    for kind in ("root", "user") if os.getuid() == 0 else ("user",):
        reason = await _unsupported_reason(kind)
        if not reason:
            return kind, ""
    return "plain", reason


def shown_paths(visible_paths: Iterable[Path] | None, *, isolate: bool) -> list[str] | None:
    """Return the absolute paths given with ``--visible``; None if containers are not isolated.

    Raises ValueError for a path that does not exist, and without ``--isolate``.
    """
    paths = [path.absolute() for path in visible_paths or ()]
    if paths and not isolate:
        raise ValueError("--visible has no effect without --isolate: add it")
    for path in paths:
        if not path.exists():
            raise ValueError(f"--visible {path}: no such file or folder")
    return list(map(str, paths)) if isolate else None


async def isolating(view: str, reason: str, more: Iterable[str]) -> list[str]:
    """Return the paths that isolated containers see: the usual ones and ``more``.

    ``view``, ``reason``: what ``view`` returned. Raises UnsupportedMachineError if this machine
    cannot isolate containers.
    """
    visible = isolated_root.visible_paths((*VISIBLE, *more))
    if view != "plain":
        reason = await _unsupported_reason(view, visible)
    if reason:
        raise UnsupportedMachineError(
            f"containers cannot be isolated here ({reason}): allow user namespaces, or omit "
            "--isolate"
        )
    return visible


def describe_isolation(
    view: str,
    reason: str,
    runtime: image_files.ImageRuntime | None = None,
    *,
    isolated: bool = False,
) -> list[str]:
    """Return lines about the limits of process nodes for users; empty without such nodes.
    ``runtime``: ``image_runtime``.
    """
    if not view:
        return []
    limits = (
        "each with its own files; network, CPUs and system folders (read-only) are this machine's"
        if isolated
        else "images are not used, nothing is isolated"
    )
    lines = [f"nodes  containers run as processes of this machine: {limits}"]
    if runtime is not None:
        lines.append(f"       containers from image files (SIF) run with {runtime.path}")
    if view == "plain":
        lines.append(
            f"       no namespaces here ({reason}): volumes and hosts file are below "
            "$STROM_POD_ROOT"
        )
    return lines


async def _unsupported_reason(kind: str, visible: list[str] | None = None) -> str:
    with tempfile.TemporaryDirectory(prefix="strom-try-") as folder:
        root, log, source = (Path(folder) / name for name in ("root", "log", "source"))
        for path in (root, log):
            path.mkdir()
        source.touch()
        mounts = [{"source": str(source), "target": "/etc/hosts", "read_only": False}]
        spec = launcher.Spec(
            command=["true"],
            entry=[],
            environment=environment(),
            working_directory="/",
            log=str(log),
            keep_bytes=0,
            memory_bytes=0,
            view=launcher.ContainerView(
                folder=str(root),
                mounts=mounts,
                hostname="try",
                as_root=kind == "root",
                isolation=None
                if visible is None
                else isolated_root.Isolation(visible=visible, devices=[]),
            ),
        )
        run = await launcher_client.start_container(spec, Output(log), "try")
        outcome = await run.events(lambda: None)
    return outcome.refused or (f"exit code {outcome.exit_code}" if outcome.exit_code else "")


def environment() -> dict[str, str]:
    """Return the base environment of every container."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def image_runtime() -> image_files.ImageRuntime | None:
    """Return the installed program that runs containers from image files."""
    executables = (shutil.which(program) for program in image_files.PROGRAMS)
    path = next((path for path in executables if path is not None), None)
    is_root = os.getuid() == 0
    return None if path is None else image_files.ImageRuntime(path, is_root=is_root)


def hosts() -> str:
    """Return the machine's hosts file."""
    return _text(HOSTS)


def lookup() -> str | None:
    """Return an ``nsswitch.conf`` for pods if the machine's does not list files first."""
    return addresses.lookup_order(_text(LOOKUP))


DISK = "ephemeral-storage"


def resources() -> units.Amounts:
    """Return CPU, memory and disk of the whole machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": 1000 * (os.cpu_count() or 1),
        "memory": memory,
        DISK: 1000 * shutil.disk_usage("/").total,
    }


def node_documents(
    count: int,
    machine: Mapping[str, int],
    *,
    cpu: str = "",
    memory: str = "",
    prefix: str = "process",
) -> list[dict[str, object]]:
    """Return manifests of ``count`` nodes that share the machine equally, or have the given
    resources.

    Raises ValueError for a bad quantity.
    """
    share = {name: machine[name] // max(count, 1) for name in ("cpu", "memory")}
    share["memory"] -= share["memory"] % 2**20
    amounts = {
        "cpu": cpu or units.text("cpu", share["cpu"]),
        "memory": memory or units.text("memory", share["memory"]),
        "pods": PODS_OF_A_NODE,
    }
    if disk := machine.get(DISK, 0) // max(count, 1):
        amounts[DISK] = f"{disk // 1000 // 2**20}Mi"
    units.amounts(amounts)
    width = max(2, len(str(count - 1)))
    documents: list[dict[str, object]] = []
    for index in range(count):
        name = f"{prefix}-{index:0{width}d}"
        documents.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {
                        keys.RUNNER: RUNNER,
                        "kubernetes.io/hostname": name,
                        "kubernetes.io/os": "linux",
                    },
                },
                "status": {"capacity": amounts, "allocatable": amounts},
            }
        )
    return documents


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

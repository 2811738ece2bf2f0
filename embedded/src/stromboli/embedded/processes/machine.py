"""Resources and capabilities of this machine for process nodes."""

import os
import platform
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from stromboli.embedded.processes import launcher_client
from stromboli.embedded.processes.core import addresses, image_files
from stromboli.embedded.processes.disk import HOSTS, LOOKUP
from stromboli.embedded.processes.launcher import main as launcher
from stromboli.embedded.processes.output import Output
from stromboli.shared import keys
from stromboli.shared.formats import units

RUNNER = "process"
PODS_OF_A_NODE = "110"
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
"""Variables that pods inherit from the node's environment; an image would set them. No others are
passed."""


class UnsupportedMachineError(Exception):
    """This machine cannot run pods as processes; the message has the reason."""


def check() -> None:
    """Raise UnsupportedMachineError if process nodes cannot run here."""
    if platform.system() != "Linux":
        raise UnsupportedMachineError(
            f"process nodes need Linux, this is {platform.system()}: they use its system "
            "calls. Simulated nodes run on every system"
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


def describe_isolation(
    view: str, reason: str, runtime: image_files.ImageRuntime | None = None
) -> list[str]:
    """Return lines about the limits of process nodes for users; empty without such nodes.
    ``runtime``: ``image_runtime``.
    """
    if not view:
        return []
    lines = [
        "nodes  containers run as processes of this machine: images are not used, nothing is "
        "isolated"
    ]
    if runtime is not None:
        lines.append(f"       containers from image files (SIF) run with {runtime.path}")
    if view == "plain":
        lines.append(
            f"       no namespaces here ({reason}): volumes and hosts file are below "
            "$STROM_POD_ROOT"
        )
    return lines


async def _unsupported_reason(kind: str) -> str:
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
                folder=str(root), mounts=mounts, hostname="try", as_root=kind == "root"
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
    found = (shutil.which(program) for program in image_files.PROGRAMS)
    path = next((path for path in found if path is not None), None)
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
    found: list[dict[str, object]] = []
    for index in range(count):
        name = f"{prefix}-{index:0{width}d}"
        found.append(
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
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

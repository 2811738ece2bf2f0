"""Container images built without a registry: a static busybox in an OCI layout archive.

`ctr images import` reads the archive. Both images share the one layer; the pause image, which
holds a pod's namespaces open, differs in its entry point only.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BUSYBOX = "localhost/stromboli/busybox:1"
PAUSE = "localhost/stromboli/pause:1"
MPI = "localhost/stromboli/mpi:1"
"""Image that `make kubelet-tools` builds: OpenMPI, sshd and mpi4py on Debian."""
TORCH = "localhost/stromboli/torch:1"
"""The same image with PyTorch for CPUs."""
DEBUG_TOOLS = "localhost/stromboli/debug-tools:1"
"""The same image with JupyterLab and TensorBoard."""
CODE_SERVER = "localhost/stromboli/code-server:1"
"""The same image with code-server."""
TERMINAL = "localhost/stromboli/terminal:1"
"""An image with ttyd."""
SPARK = "localhost/stromboli/spark:1"
"""The same image with Spark and Java."""
ENTRY_POINTS = {SPARK: ["/opt/entrypoint.sh"]}
APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "hostname",
    "true",
    "false",
    "kill",
    "env",
    "dd",
    "head",
    "nc",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
OCI = "application/vnd.oci.image"
LAYER = f"{OCI}.layer.v1.tar"


def write_archive(
    busybox: Path, archive: Path, images: Mapping[str, Path | Sequence[Path]] | None = None
) -> None:
    """Write an OCI archive with BUSYBOX and PAUSE; `busybox` is a statically linked program.

    `images`: further images by name, each the tar of its root file system, or several, of which a
    later one adds files to those before.
    """
    layer = _layer(busybox.read_bytes())
    with tarfile.open(archive, "w") as target:
        layer_ref = _add_blob(target, LAYER, layer)
        manifests = [
            _image(target, [layer_ref], BUSYBOX, {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]}),
            _image(target, [layer_ref], PAUSE, {"Entrypoint": ["/bin/sleep", "2147483647"]}),
        ]
        for name, roots in (images or {}).items():
            tars = [roots] if isinstance(roots, Path) else roots
            layers = [_add_layer(target, tar) for tar in tars]
            environment = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
            config: dict[str, Any] = {"Env": environment}
            if name in ENTRY_POINTS:
                config["Entrypoint"] = ENTRY_POINTS[name]
            manifests.append(_image(target, layers, name, config))
        _add(target, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        index = {"schemaVersion": 2, "manifests": manifests}
        _add(target, "index.json", json.dumps(index).encode())


def _layer(program: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", program, mode=0o755)
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return buffer.getvalue()


def _image(
    target: tarfile.TarFile, layers: Sequence[dict[str, Any]], name: str, config: dict[str, Any]
) -> dict[str, Any]:
    document = {
        "architecture": ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": _add_blob(target, f"{OCI}.config.v1+json", json.dumps(document).encode()),
        "layers": list(layers),
    }
    reference = _add_blob(target, f"{OCI}.manifest.v1+json", json.dumps(manifest).encode())
    return {**reference, "annotations": {"io.containerd.image.name": name}}


def _add_layer(target: tarfile.TarFile, root: Path) -> dict[str, Any]:
    """Add a file of any size without reading it into memory."""
    with root.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if f"blobs/sha256/{digest}" not in target.getnames():  # of another image
        target.add(root, f"blobs/sha256/{digest}", recursive=False)
    return {"mediaType": LAYER, "digest": f"sha256:{digest}", "size": root.stat().st_size}


def _add_blob(target: tarfile.TarFile, media_type: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    if f"blobs/sha256/{digest}" not in target.getnames():
        _add(target, f"blobs/sha256/{digest}", content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _add(target: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    target.addfile(entry, io.BytesIO(content))

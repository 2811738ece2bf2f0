"""The devices assigned to a pod, read from the annotations that the bind sets.

Reads our annotations (``stromboli.sh/cpus`` and ``devices``) and the annotations for device plugins
of shared GPUs. Invalid annotations are ignored.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from stromboli.shared import decoding, keys

GPU_INDEX = "volcano.sh/gpu-index"
VGPU_IDS = "volcano.sh/vgpu-ids-new"
T = TypeVar("T")
_CPUS = decoding.decoder_of(dict[str, str])
_DEVICES = decoding.decoder_of(dict[str, dict[str, tuple[str, ...]]])

DeviceAssignments = dict[str, tuple[str, ...]]
"""Resource -> ids of the assigned devices of all containers."""


def assigned_devices(annotations: Mapping[str, str] | None) -> DeviceAssignments:
    """The devices in a pod's annotations. GPU slices include their amount: ``GPU-x (5000MiB)``;
    CPUs are lists such as ``0-3,8``.
    """
    notes = annotations or {}
    assignments: dict[str, list[str]] = {}
    for own in _read(_CPUS, notes.get(keys.CPUS)).values():
        assignments.setdefault("cpu", []).append(own)
    for ids_by_resource in _read(_DEVICES, notes.get(keys.DEVICES)).values():
        for resource, ids in ids_by_resource.items():
            assignments.setdefault(resource, []).extend(ids)
    if notes.get(GPU_INDEX):
        assignments["volcano.sh/gpu"] = notes[GPU_INDEX].split(",")
    shares = [
        part.split(",")
        for container in notes.get(VGPU_IDS, "").split(";")
        for part in container.split(":")
        if part
    ]
    if shares and all(len(fields) == 4 for fields in shares):
        assignments["volcano.sh/vgpu"] = [f"{fields[0]} ({fields[2]}MiB)" for fields in shares]
    return {resource: tuple(ids) for resource, ids in sorted(assignments.items())}


def format_assignments(ids_by_resource: Mapping[str, tuple[str, ...]]) -> str:
    """The assignments in one line: ``cpu 0-3; gpu GPU-a,GPU-b``."""
    return "; ".join(
        f"{resource.rpartition('/')[2]} {','.join(ids)}"
        for resource, ids in ids_by_resource.items()
        if ids
    )


def _read(decoder: "msgspec.json.Decoder[dict[str, T]]", text: str | None) -> dict[str, T]:
    try:
        return decoding.decode(decoder, text or "{}")
    except msgspec.DecodeError:
        return {}

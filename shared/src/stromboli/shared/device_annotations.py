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
_CPUS = msgspec.json.Decoder(dict[str, str])
_DEVICES = msgspec.json.Decoder(dict[str, dict[str, tuple[str, ...]]])

DeviceAssignments = dict[str, tuple[str, ...]]
"""Resource -> ids of the assigned devices of all containers."""


def assigned_devices(annotations: Mapping[str, str] | None) -> DeviceAssignments:
    """The devices in a pod's annotations. GPU slices include their amount: ``GPU-x (5000MiB)``;
    CPUs are lists such as ``0-3,8``.
    """
    notes = annotations or {}
    found: dict[str, list[str]] = {}
    for own in _read(_CPUS, notes.get(keys.CPUS)).values():
        found.setdefault("cpu", []).append(own)
    for given in _read(_DEVICES, notes.get(keys.DEVICES)).values():
        for resource, ids in given.items():
            found.setdefault(resource, []).extend(ids)
    if notes.get(GPU_INDEX):
        found["volcano.sh/gpu"] = notes[GPU_INDEX].split(",")
    shares = [
        part.split(",")
        for container in notes.get(VGPU_IDS, "").split(";")
        for part in container.split(":")
        if part
    ]
    if shares and all(len(fields) == 4 for fields in shares):
        found["volcano.sh/vgpu"] = [f"{fields[0]} ({fields[2]}MiB)" for fields in shares]
    return {resource: tuple(ids) for resource, ids in sorted(found.items())}


def format_assignments(found: Mapping[str, tuple[str, ...]]) -> str:
    """The assignments in one line: ``cpu 0-3; gpu GPU-a,GPU-b``."""
    return "; ".join(
        f"{resource.rpartition('/')[2]} {','.join(ids)}" for resource, ids in found.items() if ids
    )


def _read(decoder: "msgspec.json.Decoder[dict[str, T]]", text: str | None) -> dict[str, T]:
    try:
        return decoding.decode(decoder, text or "{}")
    except msgspec.DecodeError:
        return {}

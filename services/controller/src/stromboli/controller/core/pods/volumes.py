"""Volume claims of a job: claims that it names, and claims that are created for it.

The name of a created claim is derived from the job's uid and the mount path, so that a repeated
create finds the claim. The job owns the claim, which is deleted with the job, not with pods. Unlike
in Volcano, a job that names an absent claim is still admitted to its queue; its pods wait for the
claim, like any pod.
"""

import hashlib
from collections.abc import Iterator

import msgspec

from stromboli.controller.core import commands, manifests
from stromboli.shared.api import kinds
from stromboli.shared.api.batch import Job, VolumeSpec

CONTROLLED = "volume-pvc-"
"""Prefix of the keys of claims in ``controlledResources``; the value is the claim's name."""
_NO_CLAIM = (b"", b"null")
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SUFFIX_LENGTH = 12


def is_made(volume: VolumeSpec) -> bool:
    """Whether the controller creates the volume's claim for the job."""
    return bytes(volume.volume_claim) not in _NO_CLAIM


def claim_name(job: Job, volume: VolumeSpec) -> str:
    """The claim's name; empty for a volume without a claim."""
    if volume.volume_claim_name or not is_made(volume):
        return volume.volume_claim_name
    return name_for(job, volume)


def name_for(job: Job, volume: VolumeSpec) -> str:
    """The name of a claim that is created for this volume."""
    identity = f"{job.metadata.uid}\0{volume.mount_path}"
    number = int.from_bytes(hashlib.sha256(identity.encode()).digest())
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, digit = divmod(number, len(_LETTERS))
        suffix += _LETTERS[digit]
    return f"{job.metadata.name}-pvc-{suffix}"


def is_recorded(job: Job, volume: VolumeSpec) -> bool:
    """Whether a controller wrote the name of the claim that it created into the spec: this one, or
    Volcano's, whose names are random and in the status."""
    name = volume.volume_claim_name
    is_noted = is_made(volume) and CONTROLLED + name in job.status.controlled_resources
    return is_noted or name == name_for(job, volume)


def resources(job: Job) -> Iterator[commands.Create]:
    """The claims to create."""
    for volume in job.spec.volumes:
        if not is_made(volume):
            continue
        name = claim_name(job, volume)
        spec = msgspec.json.decode(volume.volume_claim)
        yield commands.Create(
            kind=kinds.PERSISTENT_VOLUME_CLAIMS,
            namespace=job.metadata.namespace,
            name=name,
            body=manifests.body(kinds.PERSISTENT_VOLUME_CLAIMS, job, name, spec=spec),
            owner_uid=job.metadata.uid,
        )


def controlled(job: Job) -> dict[str, str]:
    """The entries of ``controlledResources`` for the claims."""
    names = {claim_name(job, volume) for volume in job.spec.volumes} - {""}
    return {CONTROLLED + name: name for name in sorted(names)}


def written_back(job: Job) -> commands.Stage:
    """The patch that writes the names of created claims into the spec."""
    operations = []
    for position, volume in enumerate(job.spec.volumes):
        name = claim_name(job, volume)
        if name and not volume.volume_claim_name:
            at = f"/spec/volumes/{position}"
            operations.append(manifests.test(f"{at}/mountPath", volume.mount_path))
            operations.append(manifests.put(f"{at}/volumeClaimName", name))
    if not operations:
        return ()
    return (manifests.json_patch(kinds.JOBS, job, *operations),)

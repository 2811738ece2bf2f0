"""The volume controller and provisioner of the embedded cluster.

A claim is bound to the volume that it names, or that names the claim. Otherwise a volume is
created: immediately or, if the class waits for the first consumer, once the claim has a selected
node, and for that node. No volume is created for a class without a provisioner. Volumes created
here are deleted with their claims.
"""

import asyncio
from typing import Any

import msgspec

from stromboli.embedded.nodes.list_watch import list_and_watch
from stromboli.shared import errors, keys
from stromboli.shared.api import kinds, storage
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.runtime import runtime

MADE_BY = "pv.kubernetes.io/provisioned-by"
MAKER = "stromboli.sh/local"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"


class VolumeController:
    """Acts as volume controller and provisioner until cancelled."""

    def __init__(self, cluster: cluster_port.Cluster) -> None:
        self._cluster = cluster
        self._claims: dict[str, storage.PersistentVolumeClaim] = {}
        self._volumes: dict[str, storage.PersistentVolume] = {}
        self._classes: dict[str, storage.StorageClass] = {}
        self._changed = asyncio.Event()
        self._unlisted = {
            kinds.STORAGE_CLASSES,
            kinds.PERSISTENT_VOLUMES,
            kinds.PERSISTENT_VOLUME_CLAIMS,
        }
        """Kinds that are not listed completely yet. Until they are, a volume may seem to have no
        claim.
        """

    async def run(self) -> None:
        """Reconcile after every change, and retry after errors."""
        backoff = runtime.Backoff()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(kinds.STORAGE_CLASSES, self._classes))
            group.create_task(self._follow(kinds.PERSISTENT_VOLUMES, self._volumes))
            group.create_task(self._follow(kinds.PERSISTENT_VOLUME_CLAIMS, self._claims))
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._unlisted:
                    continue
                try:
                    await self._reconcile()
                    backoff.reset()
                except (errors.ConflictError, errors.AlreadyExistsError, errors.NotFoundError):
                    continue  # The object has changed meanwhile: another event follows.
                except errors.TransientError as error:
                    await asyncio.sleep(backoff.next_s(error.retry_after_s))
                    self._changed.set()

    async def _follow(self, kind: kinds.Kind[Any], known: dict[str, Any]) -> None:
        async for event in list_and_watch(self._cluster, kind):
            if event is None:
                self._unlisted.discard(kind)
                self._changed.set()
                continue
            try:
                api_object = kind.decode(event.object)
            except msgspec.DecodeError:
                continue
            if event.type == "DELETED":
                known.pop(api_object.metadata.key, None)
            else:
                known[api_object.metadata.key] = api_object
            self._changed.set()

    async def _reconcile(self) -> None:
        for claim in list(self._claims.values()):
            if claim.status.phase != "Bound" and claim.metadata.deletion_timestamp is None:
                await self._bind(claim)
        uids = {claim.metadata.uid for claim in self._claims.values()}
        for volume in list(self._volumes.values()):
            kept = volume.spec.claim_ref
            is_ours = volume.metadata.annotation(MADE_BY) == MAKER
            if is_ours and kept is not None and kept.uid not in uids:
                name, uid = volume.metadata.name, volume.metadata.uid
                await self._cluster.delete(kinds.PERSISTENT_VOLUMES, "", name, uid=uid)

    async def _bind(self, claim: storage.PersistentVolumeClaim) -> None:
        volume = next((it for it in self._volumes.values() if _is_for(it, claim)), None)
        if volume is None:
            document = provision(claim, self._classes.get(claim.spec.storage_class_name or ""))
            if document is None:
                return
            raw = await self._cluster.create(
                kinds.PERSISTENT_VOLUMES, "", msgspec.json.encode(document)
            )
            volume = kinds.PERSISTENT_VOLUMES.decode(raw)
        name, namespace = claim.metadata.name, claim.metadata.namespace
        await self._patch(
            kinds.PERSISTENT_VOLUME_CLAIMS,
            namespace,
            name,
            {"metadata": {"uid": claim.metadata.uid}, "spec": {"volumeName": volume.metadata.name}},
        )
        bound = {"status": {"phase": "Bound"}}
        await self._patch(kinds.PERSISTENT_VOLUMES, "", volume.metadata.name, bound, is_status=True)
        await self._patch(kinds.PERSISTENT_VOLUME_CLAIMS, namespace, name, bound, is_status=True)

    async def _patch(
        self,
        kind: kinds.Kind[Any],
        namespace: str,
        name: str,
        document: dict[str, Any],
        *,
        is_status: bool = False,
    ) -> None:
        await self._cluster.patch(
            kind,
            namespace,
            name,
            msgspec.json.encode(document),
            patch_type="merge",
            subresource="status" if is_status else "",
        )


def provision(
    claim: storage.PersistentVolumeClaim, of: storage.StorageClass | None
) -> dict[str, Any] | None:
    """Return the volume to create for a claim; None while none is to be created. For a missing
    class, volumes are created immediately.
    """
    node = claim.metadata.annotation(keys.SELECTED_NODE)
    if of is not None and of.provisioner == _NO_PROVISIONER:
        return None
    if of is not None and of.volume_binding_mode == storage.LATE and not node:
        return None
    hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    terms = [{"matchExpressions": [hostname]}] if node else []
    return {
        "apiVersion": kinds.PERSISTENT_VOLUMES.api_version,
        "kind": kinds.PERSISTENT_VOLUMES.kind,
        "metadata": {"name": f"pvc-{claim.metadata.uid}", "annotations": {MADE_BY: MAKER}},
        "spec": {
            "capacity": claim.spec.resources.requests or {},
            "accessModes": list(claim.spec.access_modes),
            "volumeMode": claim.spec.volume_mode,
            "storageClassName": claim.spec.storage_class_name or "",
            "claimRef": {
                "namespace": claim.metadata.namespace,
                "name": claim.metadata.name,
                "uid": claim.metadata.uid,
            },
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}),
        },
    }


def _is_for(volume: storage.PersistentVolume, claim: storage.PersistentVolumeClaim) -> bool:
    if claim.spec.volume_name:
        return volume.metadata.name == claim.spec.volume_name
    kept, metadata = volume.spec.claim_ref, claim.metadata
    return (
        kept is not None
        and (kept.namespace, kept.name) == (metadata.namespace, metadata.name)
        and kept.uid in ("", metadata.uid)
    )

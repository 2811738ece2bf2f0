"""Claims, volumes and devices as the API server has them, with what the controller and Kubernetes'
own controllers write to them."""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from services.scheduler.tests.support import device_claims, volume_objects
from stromboli.shared.api import core, meta, resource, storage
from stromboli.shared.messages import scheduling as messages

T = TypeVar("T", bound=meta.Object)
CLAIMED = ("nothing", "a volume", "a device", "one device for all")
"""What the pods of a gang may claim."""


class ClaimedObjects:
    """``noted``: is called with the key of each object that was written."""

    def __init__(self, next_version: Callable[[], int], noted: Callable[[str], None]) -> None:
        self.volume_claims: dict[str, storage.PersistentVolumeClaim] = {}
        self.volumes: dict[str, storage.PersistentVolume] = {}
        self.device_claims: dict[str, resource.ResourceClaim] = {}
        self._next_version = next_version
        self._noted = noted

    def all(self) -> dict[str, meta.Object]:
        return {**self.volume_claims, **self.volumes, **self.device_claims}

    def create_volume(self, name: str) -> None:
        self.volumes[name] = self._renewed(volume_objects.volume(name))

    def create_volume_claim(self, name: str) -> None:
        persistent_volume_claim = self._renewed(volume_objects.claim(name))
        self.volume_claims[persistent_volume_claim.metadata.key] = persistent_volume_claim

    def create_device_claim(self, name: str) -> None:
        claim = self._renewed(device_claims.claim(name))
        metadata = msgspec.structs.replace(claim.metadata, uid=f"uid-{name}")
        claim = msgspec.structs.replace(claim, metadata=metadata)
        self.device_claims[claim.metadata.key] = claim

    def claiming(self, name: str, pods: list[core.Pod], what: str) -> list[core.Pod]:
        """The first two pods with new claims, ``name-c...``."""
        if what == "nothing":
            return pods
        is_shared = what == "one device for all"
        names = [f"{name}-c" if is_shared else f"{name}-c-{at}" for at in range(len(pods[:2]))]
        is_volume = what == "a volume"
        for each in dict.fromkeys(names):
            (self.create_volume_claim if is_volume else self.create_device_claim)(each)
        claim = volume_objects.mounting if is_volume else device_claims.using
        first = [claim(pod, each) for pod, each in zip(pods[:2], names, strict=True)]
        return [*first, *pods[2:]]

    def of(self, prefix: str) -> list[meta.Object]:
        """The claims whose names begin so."""
        found = self.all().values()
        return [each for each in found if each.metadata.name.startswith(prefix)]

    # The controller

    def prepare(self, bind: messages.Bind) -> bool:
        """Write what a bind needs before it; return whether all of it could be written."""
        has_volumes = all(self._bind_volume(bind, each) for each in bind.volumes)
        return has_volumes and all(self._allocate(bind, each) for each in bind.devices)

    def release(self, bind: messages.Bind) -> None:
        """Withdraw the devices of a pod that is not bound."""
        for step in bind.devices:
            claim = self.device_claims.get(f"{bind.namespace}/{step.claim}")
            if claim is None or claim.metadata.uid != step.uid:
                continue
            others = tuple(each for each in claim.status.reserved_for if each.uid != bind.uid)
            if len(others) == len(claim.status.reserved_for):
                continue
            has = claim.status.allocation
            kept = None if not others and has == step.allocation else has
            self._write_devices(claim, kept, others)

    def outcomes(
        self, binds: Sequence[messages.Bind], bound: Collection[str]
    ) -> tuple[messages.ClaimOutcome, ...]:
        """The outcomes of claims that the binds allocate. ``bound``: uids of bound pods."""
        claim_outcomes = {}
        for bind in binds:
            for step in bind.devices:
                claim = self.device_claims.get(f"{bind.namespace}/{step.claim}")
                if step.allocation is None or claim is None or claim.metadata.uid != step.uid:
                    continue
                users = {it.uid for it in binds for each in it.devices if each.claim == step.claim}
                if not users.isdisjoint(bound) or claim.status.allocation == step.allocation:
                    claim_outcomes[step.claim] = messages.ClaimOutcome(
                        namespace=bind.namespace,
                        claim=step.claim,
                        uid=step.uid,
                        version=claim.metadata.version,
                    )
        return tuple(claim_outcomes.values())

    # Kubernetes' controllers

    def deallocate(self, key: str, existing: Collection[str]) -> None:
        """Remove ended pods from a device claim, and its devices if none is left. ``existing``:
        uids of pods."""
        claim = self.device_claims[key]
        left = tuple(each for each in claim.status.reserved_for if each.uid in existing)
        if left != claim.status.reserved_for:
            self._write_devices(claim, claim.status.allocation if left else None, left)

    def remove(self, key: str) -> meta.Object | None:
        """Remove a claim that nothing uses; its volume is available again."""
        claim = self.device_claims.get(key)
        if claim is not None:
            is_free = claim.status.allocation is None
            return self.device_claims.pop(key) if is_free else None
        gone = self.volume_claims.pop(key)
        for name, volume in self.volumes.items():
            named = volume.spec.claim_ref
            if named is not None and named.uid == gone.metadata.uid:
                spec = msgspec.structs.replace(volume.spec, claim_ref=None)
                self.volumes[name] = self._renewed(msgspec.structs.replace(volume, spec=spec))
                self._noted(name)
        return gone

    def allocated(self) -> list[tuple[str, str]]:
        """Pool and name of each device, once for each claim that has it."""
        return [
            (each.pool, each.device)
            for claim in self.device_claims.values()
            if claim.status.allocation is not None
            for each in claim.status.allocation.devices.results
        ]

    def _bind_volume(self, bind: messages.Bind, step: messages.ClaimedVolume) -> bool:
        key = f"{bind.namespace}/{step.claim}"
        claim, volume = self.volume_claims.get(key), self.volumes.get(step.volume)
        if claim is None or claim.metadata.uid != step.uid:
            return False
        if claim.spec.volume_name:
            return claim.spec.volume_name == step.volume
        if volume is None or volume.spec.claim_ref is not None:
            return False
        named = storage.ClaimReference(
            namespace=bind.namespace, name=step.claim, uid=claim.metadata.uid
        )
        of_volume = msgspec.structs.replace(volume.spec, claim_ref=named)
        self.volumes[step.volume] = self._renewed(msgspec.structs.replace(volume, spec=of_volume))
        of_claim = msgspec.structs.replace(claim.spec, volume_name=step.volume)
        self.volume_claims[key] = self._renewed(msgspec.structs.replace(claim, spec=of_claim))
        self._noted(step.volume)
        self._noted(key)
        return True

    def _allocate(self, bind: messages.Bind, step: messages.ClaimedDevices) -> bool:
        claim = self.device_claims.get(f"{bind.namespace}/{step.claim}")
        if claim is None or claim.metadata.uid != step.uid:
            return False
        has, allocation = claim.status.allocation, step.allocation
        if (has is None and allocation is None) or (has and allocation and has != allocation):
            return False
        if all(each.uid != bind.uid for each in claim.status.reserved_for):
            pod = resource.ClaimConsumer(resource="pods", name=bind.pod, uid=bind.uid)
            self._write_devices(claim, has or allocation, (*claim.status.reserved_for, pod))
        return True

    def _write_devices(
        self,
        claim: resource.ResourceClaim,
        allocation: resource.Allocation | None,
        users: tuple[resource.ClaimConsumer, ...],
    ) -> None:
        status = msgspec.structs.replace(claim.status, allocation=allocation, reserved_for=users)
        made = self._renewed(msgspec.structs.replace(claim, status=status))
        self.device_claims[made.metadata.key] = made
        self._noted(made.metadata.key)

    def _renewed(self, made: T) -> T:
        metadata = msgspec.structs.replace(
            made.metadata, resource_version=str(self._next_version())
        )
        return msgspec.structs.replace(made, metadata=metadata)

"""Dynamic resource allocation: a pod goes to a node that reaches the devices of its claims.

The rules are those of the Kubernetes plugin DynamicResources for whole devices: class and request
selectors, counts, all devices of a node, ``firstAvailable``, constraints on attributes, shared
claims. Devices allocated for a task belong to its claim until no task of the session uses the
claim. Pods of a claim with devices can only be placed on nodes that reach them.
"""

from collections.abc import Hashable, Iterator, Sequence

import msgspec
import numpy as np

from stromboli.scheduler.core.cluster import device_claims
from stromboli.scheduler.core.framework import session
from stromboli.scheduler.core.model import entities, node_views
from stromboli.scheduler.core.placement import extension_points
from stromboli.scheduler.core.plugins.predicates import (
    device_allocations,
    device_inventory,
    device_selectors,
)
from stromboli.shared.api import resource
from stromboli.shared.messages import scheduling as messages

NOT_ENOUGH = "cannot allocate all claims"
ELSEWHERE = "resourceclaim not available on the node"


class _ClaimState(msgspec.Struct, eq=False):
    """A claim with devices. ``users``: tasks on nodes that use it; ``first``: those at the start of
    the session."""

    identities: tuple[device_inventory.Identity, ...]
    reached: extension_points.Mask
    users: set[str]
    first: frozenset[str] = frozenset()
    given: device_inventory.AllocatedDevices | None = None
    """The devices that this session allocated to it."""


class Devices:
    """Devices and claims of a session."""

    def __init__(self, ssn: session.Session) -> None:
        self._session = ssn
        cluster = ssn.cluster
        self._classes = {each.metadata.name: each for each in cluster.device_classes}
        self._claims = device_claims.ClaimIndex(cluster)
        self._unread = ssn.model.auxiliary.unreadable["resource_claims"]
        table = ssn.nodes
        self._stock = ssn.model.auxiliary.cached(
            "devices",
            (
                cluster.resource_slices,
                cluster.device_classes,
                table.names,
                table.labelled.placement_version,
            ),
            lambda: device_inventory.Inventory(cluster.resource_slices, self._classes, table),
        )
        self._stock.taken = set()
        self._held: dict[str, _ClaimState] = {}
        for key, claim in sorted(self._claims.by_key.items()):
            if claim.status.allocation is not None:
                self._held[key] = self._allocated(claim.status.allocation)
        for task in ssn.model.pod_index.claimants.values():
            for claim in self._claims.of(task).claims:
                if claim.metadata.key in self._held:
                    self._held[claim.metadata.key].users.add(task.uid)
        for claim_state in self._held.values():
            claim_state.first = frozenset(claim_state.users)
        self._demands: dict[str, device_inventory.DeviceRequest] = {}

    @property
    def scope(self) -> extension_points.Scope:
        """Return the scope of the filter: whether an allocation on one node changes others."""
        return (
            extension_points.Scope.GLOBAL if self._stock.has_wide else extension_points.Scope.LOCAL
        )

    def missing(self, task: entities.Task) -> str | None:
        """Return why no node is feasible."""
        needed = self._claims.of(task)
        if needed.problem:
            return needed.problem
        if self._unread and self._lacking(needed.claims):
            return f"resourceclaim {min(self._unread)} cannot be read, so its devices are unknown"
        for claim in needed.claims:
            try:
                wants = [want for request in self._demand(claim).requests for want in request]
            except ValueError as error:
                return f"resourceclaim {claim.metadata.key}: {error}"
            for want in wants:
                if want.class_name not in self._classes:
                    return f"request {want.name}: device class {want.class_name} does not exist"
        return None

    def class_key(self, task: entities.Task) -> Hashable:
        """Return the key that distinguishes tasks of one class: the current state of their
        claims."""
        if not task.pod.spec.resource_claims:
            return None
        needed = self._claims.of(task)
        shared = {each.resource_claim_name for each in task.pod.spec.resource_claims} - {""}
        kinds: list[Hashable] = [needed.problem]
        for claim in needed.claims:
            claim_state = self._held.get(claim.metadata.key)
            if claim_state is not None:
                kinds.append((claim.metadata.key, claim_state.identities))
            elif claim.metadata.name in shared:
                # A later task that shares the claim must follow this one: they are never equal.
                kinds.append((claim.metadata.key, task.uid))
            else:
                kinds.append(msgspec.msgpack.encode(claim.spec))
        return tuple(kinds)

    def checks(
        self, task: entities.Task, view: node_views.NodeView
    ) -> list[extension_points.Check]:
        """Return the nodes that reach the allocated devices of the task's claims and have devices
        for the others, after the equal tasks that the view adds."""
        claims = self._claims.of(task).claims
        if not claims:
            return []
        size = len(self._session.nodes)
        reached = np.ones(size, np.bool_)
        for claim in claims:
            claim_state = self._held.get(claim.metadata.key)
            if claim_state is not None:
                reached &= claim_state.reached
        reached = reached[view.rows]
        demands = self._lacking(claims)
        enough = np.ones(view.size, np.bool_)
        unclear: dict[int, str] = {}
        for at, row in enumerate(np.arange(size)[view.rows].tolist() if demands else ()):
            before = 0 if view.added is None else int(view.added[at])
            try:
                enough[at] = self._stock.match(demands * (before + 1), row) is not None
            except device_selectors.SelectorError as error:
                unclear[at] = str(error)
        certain = np.ones(view.size, np.bool_)
        certain[list(unclear)] = False
        reason = min(unclear.values(), default="a device selector cannot be evaluated")
        return [
            extension_points.Check(ELSEWHERE, extension_points.Code.UNSCHEDULABLE, reached),
            extension_points.Check(reason, extension_points.Code.ERROR, certain),
            extension_points.Check(NOT_ENOUGH, extension_points.Code.UNSCHEDULABLE, enough),
        ]

    def on_allocate(self, tasks: Sequence[entities.Task]) -> None:
        """Allocate devices for tasks that were placed or restored."""
        for task in tasks:
            self.allocate(task)

    def on_deallocate(self, tasks: Sequence[entities.Task]) -> None:
        """Release devices of tasks."""
        for task in tasks:
            self.deallocate(task)

    def allocate(self, task: entities.Task) -> None:
        """Allocate devices of the task's node to its claims that have none."""
        claims = self._claims.of(task).claims
        if not claims:
            return
        self._give([claim for claim in claims if claim.metadata.key not in self._held], task)
        for claim in claims:
            claim_state = self._held.get(claim.metadata.key)
            if claim_state is not None:
                if not claim_state.users:
                    self._stock.taken.update(claim_state.identities)
                claim_state.users.add(task.uid)

    def deallocate(self, task: entities.Task) -> None:
        """Release the devices of claims that are no longer in use."""
        for claim in self._claims.of(task).claims:
            claim_state = self._held.get(claim.metadata.key)
            if claim_state is None or task.uid not in claim_state.users:
                continue
            claim_state.users.discard(task.uid)
            if claim_state.users:
                continue
            if claim_state.given is not None:
                del self._held[claim.metadata.key]
            elif task.uid not in claim_state.first:
                continue  # The task was not placed: the claim keeps its devices.
            self._stock.taken.difference_update(claim_state.identities)

    def preparations(self, task: entities.Task) -> Iterator[messages.ClaimedDevices]:
        """Return the claims to be allocated and reserved for the pod before its bind."""
        for claim in self._claims.of(task).claims:
            claim_state = self._held.get(claim.metadata.key)
            allocated_devices = None if claim_state is None else claim_state.given
            is_reserved = any(each.uid == task.uid for each in claim.status.reserved_for)
            if allocated_devices is None and is_reserved:
                continue
            allocation = None
            if allocated_devices is not None:
                allocation = device_allocations.allocation(
                    allocated_devices, claim, self._classes, task.node
                )
            yield messages.ClaimedDevices(
                claim=claim.metadata.name, uid=claim.metadata.uid, allocation=allocation
            )

    def _demand(self, claim: resource.ResourceClaim) -> device_inventory.DeviceRequest:
        device_request = self._demands.get(claim.metadata.key)
        if device_request is None:
            device_request = self._demands[claim.metadata.key] = device_inventory.device_request(
                claim
            )
        return device_request

    def _lacking(
        self, claims: tuple[resource.ResourceClaim, ...]
    ) -> list[device_inventory.DeviceRequest]:
        return [self._demand(claim) for claim in claims if claim.metadata.key not in self._held]

    def _give(self, lacking: list[resource.ResourceClaim], task: entities.Task) -> None:
        """Allocate devices of the task's node to the claims; none if there are too few, because a
        filter was disabled."""
        row = self._session.nodes.rows.get(task.node)
        try:
            demands = [self._demand(claim) for claim in lacking]
            allocations = None if row is None or not demands else self._stock.match(demands, row)
        except ValueError:
            allocations = None
        for claim, each in zip(lacking, allocations or (), strict=False):
            devices = [device for _, device in each]
            identities = tuple(device.identity for want, device in each if not want.is_admin)
            self._held[claim.metadata.key] = _ClaimState(
                identities, self._stock.reached(devices), set(), given=each
            )

    def _allocated(self, allocation: resource.Allocation) -> _ClaimState:
        identities = tuple(
            (each.driver, each.pool, each.device)
            for each in allocation.devices.results
            if not each.admin_access
        )
        self._stock.taken.update(identities)
        selector = allocation.node_selector
        table = self._session.nodes
        everywhere = np.ones(len(table), np.bool_)
        reached = everywhere if selector is None else device_inventory.selected(table, selector)
        return _ClaimState(identities, reached, set())

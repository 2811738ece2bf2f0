"""Checks the volumes and devices that pods claim, from the history of an API server.

Shares no code with the system, like ``invariants``. The rules:

* **Once**: no volume is bound to two claims, and no device is allocated to two claims.
* **Before the bind**: when a pod gets its node, each PersistentVolumeClaim of it has a volume, and
  each ResourceClaim is allocated on that node and reserved for that pod.
* **One claim for a volume of a job**, also after the controller was killed between two steps.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from stromboli.testkit.checkers import job_lifecycle

Event = dict[str, Any]
Object = dict[str, Any]
DISK, DEVICE = "PersistentVolumeClaim", "ResourceClaim"


class ClaimsChecker:
    """The state of all claims after each event."""

    def __init__(self) -> None:
        self._claims: dict[str, dict[tuple[str, str], Object]] = {DISK: {}, DEVICE: {}}
        self._jobs: dict[str, Object] = {}
        self._made: dict[str, set[str]] = defaultdict(set)
        self._bound: set[str] = set()

    def take(self, event: Event) -> Iterator[str]:
        """Apply one event; yield the violations that it causes."""
        thing = event["object"]
        kind, uid = thing["kind"], thing["metadata"]["uid"]
        if kind == "Job":
            self._jobs[uid] = thing
        elif kind in self._claims:
            claims = self._claims[kind]
            key = thing["metadata"]["namespace"], thing["metadata"]["name"]
            claims.pop(key, None)
            if event["type"] != "DELETED":
                claims[key] = thing
            yield from _given_twice(kind, claims.values())
            if kind == DISK:
                yield from self._made_twice(thing)
        elif kind == "Pod" and thing["spec"].get("nodeName") and uid not in self._bound:
            self._bound.add(uid)
            if not event.get("listed"):
                yield from self._bound_too_early(thing)

    def _made_twice(self, claim: Object) -> Iterator[str]:
        for uid in job_lifecycle.owners(claim, "Job"):
            self._made[uid].add(claim["metadata"]["uid"])
            job = self._jobs.get(uid)
            volumes = (job["spec"].get("volumes") or ()) if job else ()
            count = sum("volumeClaim" in volume for volume in volumes)
            if job and len(self._made[uid]) > count:
                name = job["metadata"]["name"]
                yield f"job {name} has had {len(self._made[uid])} claims for {count} volumes"

    def _bound_too_early(self, pod: Object) -> Iterator[str]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        node = pod["spec"]["nodeName"]
        for volume in pod["spec"].get("volumes") or ():
            wanted = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if wanted and not _volume_of(self._claims[DISK].get((namespace, wanted))):
                yield f"pod {name} was bound before its claim {wanted} had a volume"
        for entry in pod["spec"].get("resourceClaims") or ():
            wanted = entry.get("resourceClaimName")
            claim = self._claims[DEVICE].get((namespace, wanted)) if wanted else None
            status = claim.get("status") or {} if claim else {}
            users = {user["uid"] for user in status.get("reservedFor") or ()}
            if wanted and pod["metadata"]["uid"] not in users:
                yield f"pod {name} was bound before its claim {wanted} was reserved for it"
            if status.get("allocation") and node not in _nodes_of(status["allocation"]):
                yield f"pod {name} was bound to {node}, away from the devices of {wanted}"


def _given_twice(kind: str, claims: Iterable[Object]) -> Iterator[str]:
    holders: dict[str, str] = {}
    for claim in claims:
        name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
        for given in [_volume_of(claim)] if kind == DISK else _devices_of(claim):
            if given and given in holders:
                yield f"{given} is given to claims {holders[given]} and {name}"
            holders[given] = name


def _volume_of(claim: Object | None) -> str:
    return str(claim["spec"].get("volumeName", "")) if claim else ""


def _devices_of(claim: Object) -> list[str]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [f"{it['driver']}/{it['pool']}/{it['device']}" for it in results]


def _nodes_of(allocation: Object) -> set[str]:
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    return {
        node
        for term in terms
        for field in term.get("matchFields") or ()
        if field["key"] == "metadata.name"
        for node in field["values"]
    }


def violations(history: Iterable[Event]) -> list[str]:
    """Return all violations about claims in order; empty if there are none."""
    checker, found = ClaimsChecker(), list[str]()
    for event in history:
        found += (line for line in checker.take(event) if line not in found)
    return found

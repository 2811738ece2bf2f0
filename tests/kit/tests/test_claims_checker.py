"""The checker of claims sees each broken rule, and none where all held."""

from typing import Any

import pytest

from stromboli.testkit.checkers import claims

Event = dict[str, Any]
Object = dict[str, Any]
JOB = {
    "type": "ADDED",
    "object": {
        "kind": "Job",
        "metadata": {"name": "j", "uid": "j"},
        "spec": {"volumes": [{"mountPath": "/data", "volumeClaim": {}}]},
    },
}


def disk(name: str = "c", volume: str = "v", *, owner: str = "j") -> Event:
    metadata = {
        "name": name,
        "uid": name,
        "namespace": "d",
        "ownerReferences": [{"kind": "Job", "uid": owner}],
    }
    spec = {"volumeName": volume} if volume else {}
    thing = {"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    return {"type": "MODIFIED", "object": thing}


def device(name: str = "r", card: str = "card-0", *, pods: tuple[str, ...] = ("p",)) -> Event:
    result = {"driver": "gpu", "pool": "n", "device": card}
    terms = [{"matchFields": [{"key": "metadata.name", "values": ["n"]}]}]
    allocation = {
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": terms},
    }
    status = {"allocation": allocation, "reservedFor": [{"uid": uid} for uid in pods]}
    metadata = {"name": name, "uid": name, "namespace": "d"}
    thing = {"kind": "ResourceClaim", "metadata": metadata, "status": status if card else {}}
    return {"type": "MODIFIED", "object": thing}


def pod(node: str = "n", uid: str = "p") -> Event:
    spec = {
        "nodeName": node,
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        "resourceClaims": [{"name": "card", "resourceClaimName": "r"}],
    }
    metadata = {"name": uid, "uid": uid, "namespace": "d"}
    return {"type": "MODIFIED", "object": {"kind": "Pod", "metadata": metadata, "spec": spec}}


def test_a_history_without_violations_is_clean() -> None:
    history = [JOB, disk(volume=""), device(card=""), pod(node=""), disk(), device(), pod()]
    assert claims.violations(history) == []


@pytest.mark.parametrize(
    ("history", "line"),
    [
        ([disk(volume=""), device(), pod()], "pod p was bound before its claim c had a volume"),
        ([device(), pod()], "pod p was bound before its claim c had a volume"),
        (
            [disk(), device(card=""), pod(), device()],
            "pod p was bound before its claim r was reserved for it",
        ),
        (
            [disk(), device(), pod(uid="q")],
            "pod q was bound before its claim r was reserved for it",
        ),
        ([disk(), device(), pod("m")], "pod p was bound to m, away from the devices of r"),
        ([device(), device("s")], "gpu/n/card-0 is given to claims d/r and d/s"),
        ([disk(), disk("e", owner="k")], "v is given to claims d/c and d/e"),
        ([JOB, disk(), disk("e", "w")], "job j has had 2 claims for 1 volumes"),
    ],
)
def test_every_violation_is_named(history: list[Event], line: str) -> None:
    assert claims.violations(history) == [line]


def test_a_device_may_be_given_to_another_claim_once_the_first_is_gone() -> None:
    gone = {**device(), "type": "DELETED"}
    assert claims.violations([device(), gone, device("s")]) == []

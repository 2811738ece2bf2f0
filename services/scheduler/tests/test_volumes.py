"""Volumes: pods are placed where their volumes are or can be provisioned, and no volume is assigned
twice.
"""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.scheduler.tests.support import default_sessions, device_claims, volume_objects
from stromboli.scheduler.core.framework import session
from stromboli.shared import decoding
from stromboli.shared.api import core, kinds, meta, storage
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders
from stromboli.testkit.strategies import depth

NODES = [
    builders.make_node("a", labels={"zone": "1", "topology.kubernetes.io/zone": "z1"}),
    builders.make_node("b", labels={"zone": "2", "topology.kubernetes.io/zone": "z2"}),
]
MADE = volume_objects.storage_class(provisioner=volume_objects.DRIVER)


def closed(*objects: meta.Object) -> session.Session:
    return default_sessions.closed(*NODES, *objects)


def volumes(decided: session.Session) -> dict[str, dict[str, str]]:
    """Pod -> claim -> the volume that it is to be bound to; empty: one is made."""
    return {
        pod.removeprefix("default/"): {
            step.claim: step.volume for step in steps if isinstance(step, messages.ClaimedVolume)
        }
        for pod, steps in decided.decisions.preparations.items()
    }


def why(decided: session.Session) -> str:
    return decided.jobs["default/g"].explain()


def two(*names: str, **more: Any) -> list[meta.Object]:
    """A gang of two; ``names``: the claim of each."""
    return device_claims.group(
        "g", [volume_objects.pod(f"g-{at}", "g", name) for at, name in enumerate(names)], **more
    )


def test_a_claim_gets_the_smallest_volume_that_will_do() -> None:
    stock = [volume_objects.volume(f"v{gib}", gib) for gib in (1, 5, 3, 9)]
    pods = device_claims.group("g", [volume_objects.pod("g-0", "g", "data")])
    decided = closed(volume_objects.storage_class(), *stock, volume_objects.claim("data", 2), *pods)
    assert volumes(decided) == {"g-0": {"data": "v3"}}


def test_two_pods_never_get_one_volume() -> None:
    """The second is placed where another one is; without another the gang does not start."""
    claims = [volume_objects.claim("c0"), volume_objects.claim("c1")]
    first, other = (
        volume_objects.volume("v1", zone_name="1"),
        volume_objects.volume("v2", zone_name="2"),
    )
    late = volume_objects.storage_class()
    decided = closed(late, first, other, *claims, *two("c0", "c1"))
    assert default_sessions.binds(decided) == {"g-0": "a", "g-1": "b"}
    assert volumes(decided) == {"g-0": {"c0": "v1"}, "g-1": {"c1": "v2"}}
    decided = closed(late, first, *claims, *two("c0", "c1"))
    assert default_sessions.binds(decided) == {}
    assert "2 node(s) didn't find available persistent volumes to bind" in why(decided)


def test_pods_that_share_a_claim_lie_where_its_volume_will_be() -> None:
    """Made for the node of the first, or chosen with it."""
    anti = two("c", "c")
    assert set(default_sessions.binds(closed(MADE, volume_objects.claim("c"), *anti)).values()) == {
        "a"
    }
    chosen = volume_objects.volume("v", zone_name="2")
    decided = closed(volume_objects.storage_class(), chosen, volume_objects.claim("c"), *anti)
    assert set(default_sessions.binds(decided).values()) == {"b"}
    assert volumes(decided) == {"g-0": {"c": "v"}, "g-1": {"c": "v"}}


def test_a_pod_with_several_claims_needs_one_volume_for_each_on_one_node() -> None:
    pod = device_claims.group("g", [volume_objects.pod("g-0", "g", "big", "small")])
    claims = [volume_objects.claim("big", 8), volume_objects.claim("small", 1)]
    stock = [
        volume_objects.volume("a1", zone_name="1"),
        volume_objects.volume("b1", zone_name="2"),
        volume_objects.volume("b2", 1, zone_name="2"),
    ]
    decided = closed(volume_objects.storage_class(), *stock, *claims, *pod)
    assert default_sessions.binds(decided) == {"g-0": "b"}
    assert volumes(decided) == {"g-0": {"big": "b1", "small": "b2"}}


def test_a_volume_must_suit_its_claim() -> None:
    """Mode, access, labels; it is not being deleted, not used up, and not reserved for another
    claim.
    """
    pod = device_claims.group("g", [volume_objects.pod("g-0", "g", "c")])
    kept: dict[str, Any] = {"claimRef": {"namespace": "default", "name": "other"}}
    own: dict[str, Any] = {"claimRef": {"namespace": "default", "name": "c"}}
    requested = volume_objects.claim(
        "c", accessModes=["ReadWriteMany"], selector={"matchLabels": {"speed": "fast"}}
    )
    fast = {"speed": "fast"}
    access = ["ReadWriteOnce", "ReadWriteMany"]
    wrong = [
        volume_objects.volume("slow", accessModes=access),
        volume_objects.volume("once", labels=fast, accessModes=["ReadWriteOnce"]),
        volume_objects.volume("block", labels=fast, accessModes=access, volumeMode="Block"),
        volume_objects.volume("kept", labels=fast, accessModes=access, **kept),
        msgspec.structs.replace(
            volume_objects.volume("old", labels=fast, accessModes=access),
            status=storage.PersistentVolumeStatus(phase="Released"),
        ),
    ]
    late = volume_objects.storage_class()
    assert default_sessions.binds(closed(late, *wrong, requested, *pod)) == {}
    right = volume_objects.volume("right", labels=fast, accessModes=access)
    mine = volume_objects.volume("mine", 99, labels=fast, accessModes=access, **own)
    assert volumes(closed(late, *wrong, right, requested, *pod)) == {"g-0": {"c": "right"}}
    assert volumes(closed(late, *wrong, right, mine, requested, *pod)) == {"g-0": {"c": "mine"}}


def test_volumes_are_created_where_their_class_allows_and_the_driver_has_room() -> None:
    pod = device_claims.group("g", [volume_objects.pod("g-0", "g", "c")])
    terms = [{"matchLabelExpressions": [{"key": "zone", "values": ["2"]}]}]
    only_b = volume_objects.storage_class(
        provisioner=volume_objects.DRIVER, allowedTopologies=terms
    )
    assert default_sessions.binds(closed(only_b, volume_objects.claim("c"), *pod)) == {"g-0": "b"}

    driver = decoding.convert(
        {"metadata": {"name": volume_objects.DRIVER}, "spec": {"storageCapacity": True}},
        storage.CSIDriver,
    )

    def left(zone: str, gib: int) -> storage.CSIStorageCapacity:
        return decoding.convert(
            {
                "metadata": {"name": f"left-{zone}", "namespace": "default"},
                "storageClassName": "late",
                "nodeTopology": {"matchLabels": {"zone": zone}},
                "capacity": f"{gib}Gi",
            },
            storage.CSIStorageCapacity,
        )

    decided = closed(MADE, driver, left("1", 4), left("2", 6), volume_objects.claim("c", 5), *pod)
    assert default_sessions.binds(decided) == {"g-0": "b"}
    decided = closed(MADE, driver, left("1", 4), left("2", 4), volume_objects.claim("c", 5), *pod)
    assert "2 node(s) did not have enough free storage" in why(decided)


def test_a_volume_that_is_being_made_for_a_node_ties_its_pod() -> None:
    pod = device_claims.group("g", [volume_objects.pod("g-0", "g", "c")])
    requested = volume_objects.claim("c")
    noted = {"volume.kubernetes.io/selected-node": "b"}
    metadata = msgspec.structs.replace(requested.metadata, annotations=noted)
    chosen = msgspec.structs.replace(requested, metadata=metadata)
    assert default_sessions.binds(closed(MADE, chosen, volume_objects.volume("v"), *pod)) == {
        "g-0": "b"
    }


def test_a_bound_volume_of_a_zone_ties_its_pod_to_it() -> None:
    """Although the volume itself has no node affinity."""
    pod = device_claims.group("g", [volume_objects.pod("g-0", "g", "c")])
    zoned = volume_objects.volume("v", labels={"topology.kubernetes.io/zone": "z2"})
    decided = closed(zoned, volume_objects.claim("c", volumeName="v"), *pod)
    assert default_sessions.binds(decided) == {"g-0": "b"}


def test_a_node_attaches_no_more_volumes_than_its_driver_allows() -> None:
    """A volume that two pods share counts once; a node without a limit is not limited."""
    limit = decoding.convert(
        {
            "metadata": {"name": "a"},
            "spec": {"drivers": [{"name": volume_objects.DRIVER, "allocatable": {"count": 1}}]},
        },
        storage.CSINode,
    )
    claims = [volume_objects.claim("c0"), volume_objects.claim("c1")]
    decided = closed(MADE, limit, *claims, *two("c0", "c1"))
    assert default_sessions.binds(decided) == {"g-0": "a", "g-1": "b"}
    decided = closed(MADE, limit, *claims, *two("c0", "c0"))
    assert default_sessions.binds(decided) == {"g-0": "a", "g-1": "a"}


def test_a_node_without_drivers_limits_no_volumes_and_is_no_unknown_one() -> None:
    """Kubelets write null for the drivers of such a node; an unreadable one attaches nothing."""
    raw = b'{"metadata": {"name": "b"}, "spec": {"drivers": null}}'
    limit = decoding.convert(
        {
            "metadata": {"name": "a"},
            "spec": {"drivers": [{"name": volume_objects.DRIVER, "allocatable": {"count": 1}}]},
        },
        storage.CSINode,
    )
    claims = [volume_objects.claim("c0"), volume_objects.claim("c1")]
    nodes = (limit, kinds.CSI_NODES.decode(raw))
    decided = closed(MADE, *nodes, *claims, *two("c0", "c1"))
    assert default_sessions.binds(decided) == {"g-0": "a", "g-1": "b"}


def test_a_volume_of_a_pods_own_is_chosen_with_it() -> None:
    """Its claim has the pod's name; until it is created, the pod is pending."""
    pods = [volume_objects.own(f"g-{at}", "g") for at in range(2)]
    claims = [volume_objects.claim(f"g-{at}-scratch") for at in range(2)]
    stock = [volume_objects.volume("v1", zone_name="1"), volume_objects.volume("v2", zone_name="2")]
    decided = closed(
        volume_objects.storage_class(), *stock, *claims, *device_claims.group("g", pods)
    )
    assert default_sessions.binds(decided) == {"g-0": "a", "g-1": "b"}
    decided = closed(
        volume_objects.storage_class(), *stock, claims[0], *device_claims.group("g", pods)
    )
    assert 'persistentvolumeclaim "g-1-scratch" not found' in why(decided)


GANGS = st.lists(
    st.lists(st.lists(st.integers(1, 4), max_size=2), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)
"""Gangs of pods with claims of these sizes in GiB."""
STOCK = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "1", "2"])), max_size=6)


@depth.examples(60)
@given(GANGS, STOCK, st.booleans())
def test_whatever_is_asked_volumes_suit_and_go_to_one_claim(
    gangs: list[list[list[int]]], stock: list[tuple[int, str]], is_made: bool
) -> None:
    """Each volume is reachable from the pod's node, large enough, and used by one claim."""
    late = MADE if is_made else volume_objects.storage_class()
    there = {
        f"v{at}": volume_objects.volume(f"v{at}", gib, zone) for at, (gib, zone) in enumerate(stock)
    }
    objects: list[meta.Object] = [late, *there.values()]
    sizes: dict[str, int] = {}
    for number, gang in enumerate(gangs):
        pods = []
        for at, wanted in enumerate(gang):
            names = [f"c{number}-{at}-{which}" for which in range(len(wanted))]
            sizes |= dict(zip(names, wanted, strict=True))
            pods.append(volume_objects.pod(f"g{number}-{at}", f"g{number}", *names))
        objects += device_claims.group(f"g{number}", pods)
    objects += [volume_objects.claim(name, gib) for name, gib in sizes.items()]
    decided = closed(*objects)
    zone_of = {"a": "1", "b": "2"}
    given_away: Counter[str] = Counter()
    for pod, chosen in volumes(decided).items():
        for claim, volume in chosen.items():
            given_away[volume] += 1
            if volume:
                gib, zone = stock[int(volume[1:])]
                assert gib >= sizes[claim]
                assert zone in ("", zone_of[default_sessions.binds(decided)[pod]])
            else:
                assert is_made
    del given_away[""]
    assert all(count == 1 for count in given_away.values())
    if not is_made:
        for pod in default_sessions.binds(decided):
            group, _, member = pod.removeprefix("g").partition("-")
            assert len(volumes(decided).get(pod, {})) == len(gangs[int(group)][int(member)])


def test_sizes_of_petabytes_are_distinct() -> None:
    decided = closed(
        volume_objects.storage_class(),
        volume_objects.volume("five", gib=5 * 2**20),
        volume_objects.claim("six", gib=6 * 2**20),
        *device_claims.group("g", [volume_objects.pod("g-0", "g", "six")]),
    )
    assert volumes(decided) == {}


def test_an_unreadable_size_stops_no_other_claim() -> None:
    """Of a claim, of a volume, of what is left: it fits nowhere, or holds nothing."""
    odd = volume_objects.claim("odd")
    requests = core.ResourceRequirements(requests={"storage": "much"})
    spec = msgspec.structs.replace(odd.spec, resources=requests)
    strange = volume_objects.volume("strange", capacity={"storage": "-3x"})
    decided = closed(
        volume_objects.storage_class(),
        strange,
        volume_objects.volume("fine"),
        msgspec.structs.replace(odd, spec=spec),
        volume_objects.claim("right"),
        *device_claims.group("g", [volume_objects.pod("g-0", "g", "odd")]),
        *device_claims.group("h", [volume_objects.pod("h-0", "h", "right")]),
    )
    assert volumes(decided) == {"h-0": {"right": "fine"}}
    assert "didn't find available persistent volumes" in why(decided)

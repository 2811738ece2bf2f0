"""Claims in the cache: a volume or device of an open decision is assigned to no other claim."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.tests.support import device_claims, volume_objects
from services.scheduler.tests.support.harness import POLICY, SchedulerHarness, fold
from stromboli.scheduler.core.cache.in_flight import republication
from stromboli.scheduler.core.replay import session_replay
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta, storage
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log
from stromboli.testkit.strategies import depth

DISKS = (builders.make_queue(), builders.make_node("n1"), volume_objects.storage_class())
CARDS = (builders.make_queue(), builders.make_node("n1"), device_claims.device_class())


def versioned(obj: meta.Object, version: int) -> meta.Object:
    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(version))
    return msgspec.structs.replace(obj, metadata=metadata)


def gang(name: str, *pods: core.Pod) -> list[meta.Object]:
    return [builders.make_pod_group(name, len(pods), phase="Inqueue"), *pods]


def binds(harness: SchedulerHarness) -> list[messages.Bind]:
    return [bind for known in harness.session().decisions for bind in known.binds]


def disks(*volumes: storage.PersistentVolume) -> SchedulerHarness:
    """Two gangs of one pod, each with a claim."""
    harness = SchedulerHarness()
    claims = [volume_objects.claim("c1"), volume_objects.claim("c2")]
    harness.see(*(versioned(each, 1) for each in (*DISKS, *volumes, *claims)))
    harness.see(*gang("g1", volume_objects.pod("g1-0", "g1", "c1")))
    return harness


def test_a_bind_lists_the_volumes_to_be_bound_before() -> None:
    (bind,) = binds(disks(volume_objects.volume("v")))
    assert bind.volumes == (messages.ClaimedVolume(claim="c1", uid="uid-c1", volume="v"),)


def test_a_volume_in_flight_is_not_assigned_again() -> None:
    """Until both its claim and the volume are seen bound, in any order; a refused one is free."""
    harness = disks(volume_objects.volume("v"))
    assert len(binds(harness)) == 1
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c2")))
    assert binds(harness) == []
    harness.see(versioned(volume_objects.volume("v"), 2))
    assert binds(harness) == []
    harness.answer("refused", "g1-0", decision=0)
    assert [bind.volumes[0].volume for bind in binds(harness)] == ["v"]


def test_a_volume_is_free_when_its_claim_and_its_pod_are_gone_though_the_outcome_is_lost() -> None:
    """No outcome and no snapshot of the volume follows, so only the end of the assumption frees
    it."""
    harness = disks(volume_objects.volume("v"))
    assert len(binds(harness)) == 1
    harness.lose(versioned(volume_objects.claim("c1"), 1), volume_objects.pod("g1-0", "g1", "c1"))
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c2")))
    harness.cache.finish_session(is_throttled=False)
    assert harness.cache.session_cause, "a gang waits that can use the volume"
    assert [bind.volumes[0].volume for bind in binds(harness)] == ["v"]


def test_a_replay_uses_the_volume_of_a_deleted_claim_like_its_session() -> None:
    """The session without decisions that found it free has no record."""
    harness = disks(volume_objects.volume("v"))
    assert len(binds(harness)) == 1
    harness.lose(versioned(volume_objects.claim("c1"), 1), volume_objects.pod("g1-0", "g1", "c1"))
    assert binds(harness) == []
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c2")))
    assert [bind.volumes[0].volume for bind in binds(harness)] == ["v"]
    replayed = session_replay.replay_sessions(harness.log.records, [POLICY.configured], POLICY)
    assert [each.is_same for each in replayed] == [True, True]


def test_a_volume_is_free_when_its_claim_was_bound_to_another_one() -> None:
    harness = disks(volume_objects.volume("v"))
    (bind,) = binds(harness)
    harness.see(versioned(volume_objects.claim("c1", volumeName="w"), 3))
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c2")))
    harness.see(versioned(volume_objects.pod("g1-0", "g1", "c1", node=bind.node), 9))
    assert harness.cache.assumed.claim_for("v") is None
    assert [bind.volumes[0].volume for bind in binds(harness)] == ["v"]


def test_an_executed_volume_stays_assigned_until_the_claim_is_visibly_bound() -> None:
    """The pod's snapshot may be ahead of the claim's."""
    harness = disks(volume_objects.volume("v"))
    (bind,) = binds(harness)
    harness.answer("executed")
    harness.see(versioned(volume_objects.pod("g1-0", "g1", "c1", node=bind.node), 9))
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c2")))
    assert binds(harness) == []
    restarted = fold(harness.log.records)
    assert restarted.model.auxiliary.volumes["v"].spec.claim_ref is not None
    harness.see(versioned(volume_objects.claim("c1", volumeName="v"), 3))
    harness.see(
        versioned(volume_objects.volume("v", claimRef={"namespace": "default", "name": "c1"}), 3)
    )
    assert binds(harness) == []
    assert harness.cache.assumed.volume_for("default/c1", "uid-c1") is None


def test_a_pod_follows_the_volume_provisioned_for_the_pod_it_shares_a_claim_with() -> None:
    """Though the annotation is not written yet."""
    harness = SchedulerHarness()
    harness.see(*DISKS[:2], builders.make_node("n2"), volume_objects.claim("c"))
    harness.see(volume_objects.storage_class(provisioner=volume_objects.DRIVER))
    harness.see(*gang("g1", volume_objects.pod("g1-0", "g1", "c", cpu="3")))
    (first,) = binds(harness)
    harness.see(*gang("g2", volume_objects.pod("g2-0", "g2", "c")))
    (second,) = binds(harness)
    assert second.node == first.node


def test_a_volumes_nodes_follow_their_current_labels() -> None:
    """Nodes and labels change between sessions, and so do devices."""
    harness = SchedulerHarness()
    harness.see(
        *DISKS[:1], *DISKS[2:], volume_objects.volume("v", zone_name="1"), volume_objects.claim("c")
    )
    harness.see(builders.make_node("n1", labels={"zone": "2"}))
    harness.see(*gang("g", volume_objects.pod("g-0", "g", "c")))
    assert binds(harness) == []
    harness.see(builders.make_node("n0", labels={"zone": "2"}))
    assert binds(harness) == []
    harness.see(versioned(builders.make_node("n1", labels={"zone": "1"}), 9))
    assert [bind.node for bind in binds(harness)] == ["n1"]

    harness.see(
        device_claims.device_class(), device_claims.claim("d"), device_claims.devices("n9", 1)
    )
    harness.see(*gang("h", device_claims.pod("h-0", "h", "d")))
    assert binds(harness) == []
    harness.see(builders.make_node("n9"))
    assert [bind.node for bind in binds(harness)] == ["n9"]


def devices_of(found: Sequence[messages.Bind]) -> list[list[str]]:
    return [
        [each.device for each in step.allocation.devices.results]
        for bind in found
        for step in bind.devices
        if step.allocation is not None
    ]


def test_devices_in_flight_are_not_assigned_again() -> None:
    """Until the claim is seen with them; a refused bind frees them."""
    harness = SchedulerHarness()
    harness.see(
        *CARDS, device_claims.devices("n1", 1), device_claims.claim("c1"), device_claims.claim("c2")
    )
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "c2")))
    assert binds(harness) == []
    harness.answer("refused", "g1-0", decision=0)
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]


def test_a_pod_that_shares_a_claim_in_flight_is_only_added_to_it() -> None:
    harness = SchedulerHarness()
    harness.see(*CARDS, device_claims.devices("n1", 1), device_claims.claim("c"))
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c")))
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "c")))
    (bind,) = binds(harness)
    assert bind.devices == (messages.ClaimedDevices(claim="c", uid=""),)


def cards(*claims: str) -> SchedulerHarness:
    """One device, and claims to it."""
    harness = SchedulerHarness()
    harness.see(*(versioned(each, 1) for each in (*CARDS, device_claims.devices("n1", 1))))
    harness.see(*(versioned(device_claims.claim(each), 1) for each in claims))
    return harness


def held(name: str, version: int) -> meta.Object:
    return versioned(device_claims.claim(name, allocated=["n1-gpu-0"], node="n1"), version)


def freed(name: str, version: int) -> meta.Object:
    return versioned(device_claims.claim(name), version)


def test_a_bound_pod_ends_its_bind_though_its_claim_is_not_visibly_bound() -> None:
    """Each claim of the decision is held on its own."""
    harness = disks(volume_objects.volume("v"))
    (bind,) = binds(harness)
    harness.see(versioned(volume_objects.pod("g1-0", "g1", "c1", node=bind.node), 9))
    assert harness.cache.assumed.bind_of("default/g1-0") is None
    assert harness.cache.assumed.claim_for("v") == ("default", "c1", "uid-c1")
    harness.cache.assumed.overdue(builders.NOON)
    (again,) = harness.cache.assumed.overdue(builders.NOON + republication.FIRST_WAIT)
    assert [each.pod for each in again.binds] == ["g1-0"], "its outcome answers for the claim"


def test_devices_are_free_once_their_claim_was_deallocated_before_a_snapshot_showed_it() -> None:
    """Its pod has finished. Compaction, or a late reader, leaves no snapshot with the devices."""
    harness = cards("c1", "c2")
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    (bind,) = binds(harness)
    harness.answer("executed", claims=[held("c1", 5)])
    ended = device_claims.pod("g1-0", "g1", "c1", node=bind.node, phase="Succeeded")
    harness.see(versioned(ended, 6))
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "c2")))
    assert binds(harness) == [], "the claim may be allocated still"
    harness.see(freed("c1", 7))
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]
    assert fold(harness.log.records).assumed.devices_for("default/c1", "") is None


def test_devices_of_a_refused_pod_stay_taken_while_another_pod_shares_their_claim() -> None:
    """The controller leaves them allocated; the claim's snapshot may be behind the outcome."""
    harness = cards("c", "d")
    sharing = [device_claims.pod(f"g1-{at}", "g1", "c") for at in range(2)]
    group = builders.make_pod_group("g1", 1, phase="Inqueue")
    harness.see(group, *sharing)
    assert len(binds(harness)) == 2
    harness.answer("refused", "g1-0", claims=[held("c", 5)])
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "d")))
    assert devices_of(binds(harness)) == []
    harness.see(held("c", 5))
    assert devices_of(binds(harness)) == []
    assert harness.cache.assumed.devices_for("default/c", "") is None
    harness.lose(*sharing)
    harness.see(freed("c", 6))
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]


def test_devices_of_a_claim_that_is_deleted_are_free_though_the_outcome_is_lost() -> None:
    harness = cards("c1", "c2")
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    assert len(binds(harness)) == 1
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "c2")))
    harness.lose(freed("c1", 1), device_claims.pod("g1-0", "g1", "c1"))
    harness.cache.finish_session(is_throttled=False)
    assert harness.cache.session_cause, "a gang waits that can use the devices"
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]


@pytest.mark.parametrize("result", ["executed", "refused"])
def test_an_outcome_that_frees_devices_starts_a_session_for_a_gang_that_waits_for_them(
    result: messages.Result,
) -> None:
    """The pod is gone, so nothing else changes: they were deallocated before the outcome was read,
    or never allocated."""
    harness = cards("c1", "c2")
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    assert len(binds(harness)) == 1
    harness.see(*gang("g2", device_claims.pod("g2-0", "g2", "c2")))
    harness.lose(device_claims.pod("g1-0", "g1", "c1"))
    harness.see(freed("c1", 7))
    assert binds(harness) == [], "the controller may still allocate them"
    assert harness.cache.session_cause == ""
    is_executed = result == "executed"
    harness.answer(result, "g1-0", decision=0, claims=[held("c1", 5)] if is_executed else [])
    assert harness.cache.session_cause
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]


@pytest.mark.parametrize("version", [5, 0])
def test_an_outcome_without_the_version_of_a_claim_waits_for_the_devices(version: int) -> None:
    harness = cards("c1")
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    assert len(binds(harness)) == 1
    harness.answer("executed", claims=[held("c1", version)] if version else [])
    assert harness.cache.assumed.devices_for("default/c1", "") is not None
    harness.see(held("c1", 5))
    assert harness.cache.assumed.devices_for("default/c1", "") is None


@settings(depth.examples(100))
@given(data=st.data())
def test_claims_deallocated_again_lead_to_the_same_cache_in_any_order(data: st.DataObject) -> None:
    """Each topic in its own order: what was written and revoked may be read at once."""
    harness = cards("c1", "c2")
    harness.see(*gang("g1", device_claims.pod("g1-0", "g1", "c1")))
    (bind,) = binds(harness)
    steps = {
        "answer": lambda: harness.answer("executed", claims=[held("c1", 5)]),
        "refuse": lambda: harness.answer("refused", "g1-0"),
        "bind": lambda: harness.see(
            versioned(device_claims.pod("g1-0", "g1", "c1", node=bind.node), 6)
        ),
        "hold": lambda: harness.see(held("c1", 5)),
        "free": lambda: harness.see(freed("c1", 7)),
        "lose": lambda: harness.lose(freed("c1", 8)),
    }
    names = data.draw(st.lists(st.sampled_from(sorted(steps)), unique=True))
    of_claim = iter(name for name in ("hold", "free", "lose") if name in names)
    for name in names:
        steps[next(of_claim) if name in ("hold", "free", "lose") else name]()
    choices = data.draw(st.lists(st.integers(0, 9), min_size=1))

    def known(records: Sequence[envelope.Record]) -> list[object]:
        cache = fold(records)
        cache.finish_session(is_throttled=False)
        return [
            cache.model.auxiliary.resource_claims,
            cache.assumed.devices_for("default/c1", ""),
            cache.restart_from(),
            len(cache.assumed),
        ]

    assert known(topic_log.interleave(harness.log.records, choices)) == known(harness.log.records)


def test_a_claim_created_from_a_template_triggers_a_session() -> None:
    """Its name is added to the pod's status after the pod is created."""
    harness = SchedulerHarness()
    harness.see(*CARDS, device_claims.devices("n1", 1))
    harness.see(*gang("g", device_claims.from_template("g-0", "g", None)))
    assert binds(harness) == []
    assert harness.cache.session_cause == ""
    harness.see(device_claims.claim("made"))
    harness.see(versioned(device_claims.from_template("g-0", "g", "made"), 5))
    assert harness.cache.session_cause
    assert devices_of(binds(harness)) == [["n1-gpu-0"]]


def test_no_devices_are_assigned_while_a_claim_is_unreadable() -> None:
    """It may have any of them."""
    harness = SchedulerHarness()
    harness.see(*CARDS, device_claims.devices("n1", 1), device_claims.claim("c"))
    harness.apply(harness.log.garble(topics.RESOURCE_CLAIMS, "default/other"))
    harness.see(*gang("g", device_claims.pod("g-0", "g", "c")))
    decided = harness.session()
    assert decided.decisions == ()
    explained = decided.explanations["default/g"]
    assert explained is not None
    assert "default/other cannot be read" in explained.message


def test_claims_and_decisions_in_any_order_lead_to_the_same_cache() -> None:
    harness = disks(volume_objects.volume("v"))
    binds(harness)
    harness.see(versioned(volume_objects.claim("c1"), 7))

    def known(records: Sequence[envelope.Record]) -> list[object]:
        around = fold(records).model.auxiliary
        return [around.claims, around.volumes]

    forward = known(harness.log.records)
    for choices in ([0], [1, 5, 2], [7, 3]):
        assert known(topic_log.interleave(harness.log.records, choices)) == forward
    assert forward[1]["v"].spec.claim_ref.name == "c1"  # type: ignore[index]

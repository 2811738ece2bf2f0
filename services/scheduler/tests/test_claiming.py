"""Claims in the picture: what a decision gives to a claim is nobody else's from then on."""

from collections.abc import Sequence

import msgspec

from services.scheduler.tests import claimed, mounting
from services.scheduler.tests.cell import Cell, fold
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta, storage
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log

DISKS = (builders.make_queue(), builders.make_node("n1"), mounting.storage_class())
CARDS = (builders.make_queue(), builders.make_node("n1"), claimed.device_class())


def versioned(made: meta.Object, version: int) -> meta.Object:
    metadata = msgspec.structs.replace(made.metadata, resource_version=str(version))
    return msgspec.structs.replace(made, metadata=metadata)


def gang(name: str, *pods: core.Pod) -> list[meta.Object]:
    return [builders.make_pod_group(name, len(pods), phase="Inqueue"), *pods]


def binds(cell: Cell) -> list[messages.Bind]:
    return [bind for known in cell.session().decisions for bind in known.binds]


def disks(*volumes: storage.PersistentVolume) -> Cell:
    """Two gangs of one pod, each with a claim; what there is to claim is given."""
    cell = Cell()
    claims = [mounting.claim("c1"), mounting.claim("c2")]
    cell.see(*(versioned(each, 1) for each in (*DISKS, *volumes, *claims)))
    cell.see(*gang("g1", mounting.pod("g1-0", "g1", "c1")))
    return cell


def test_a_bind_says_what_of_volumes_is_to_be_done_before() -> None:
    (bind,) = binds(disks(mounting.volume("v")))
    assert bind.volumes == (messages.ClaimedVolume(claim="c1", uid="uid-c1", volume="v"),)


def test_a_volume_in_flight_is_not_given_away_again() -> None:
    """Until its claim and itself are seen bound, whatever comes first; a refused one is free."""
    cell = disks(mounting.volume("v"))
    assert len(binds(cell)) == 1
    cell.see(*gang("g2", mounting.pod("g2-0", "g2", "c2")))
    assert binds(cell) == []
    cell.see(versioned(mounting.volume("v"), 2))
    assert binds(cell) == []
    cell.answer("refused", "g1-0", decision=0)
    assert [bind.volumes[0].volume for bind in binds(cell)] == ["v"]


def test_what_was_executed_stays_taken_until_the_claim_is_seen_bound() -> None:
    """The pod's snapshot may be ahead of the claim's."""
    cell = disks(mounting.volume("v"))
    (bind,) = binds(cell)
    cell.answer("executed")
    cell.see(versioned(mounting.pod("g1-0", "g1", "c1", node=bind.node), 9))
    cell.see(*gang("g2", mounting.pod("g2-0", "g2", "c2")))
    assert binds(cell) == []
    restarted = fold(cell.log.records)
    assert restarted.world.surroundings.volumes["v"].spec.claim_ref is not None
    cell.see(versioned(mounting.claim("c1", volumeName="v"), 3))
    cell.see(versioned(mounting.volume("v", claimRef={"namespace": "default", "name": "c1"}), 3))
    assert binds(cell) == []
    assert cell.picture.assumed.volume_for("default/c1", "uid-c1") is None


def test_a_pod_follows_what_is_made_for_the_one_it_shares_a_claim_with() -> None:
    """Though the annotation is not written yet."""
    cell = Cell()
    cell.see(*DISKS[:2], builders.make_node("n2"), mounting.claim("c"))
    cell.see(mounting.storage_class(provisioner=mounting.DRIVER))
    cell.see(*gang("g1", mounting.pod("g1-0", "g1", "c", cpu="3")))
    (first,) = binds(cell)
    cell.see(*gang("g2", mounting.pod("g2-0", "g2", "c")))
    (second,) = binds(cell)
    assert second.node == first.node


def test_a_volumes_nodes_are_those_whose_labels_say_so_now() -> None:
    """Nodes and labels change between sessions, and so do devices."""
    cell = Cell()
    cell.see(*DISKS[:1], *DISKS[2:], mounting.volume("v", zone_name="1"), mounting.claim("c"))
    cell.see(builders.make_node("n1", labels={"zone": "2"}))
    cell.see(*gang("g", mounting.pod("g-0", "g", "c")))
    assert binds(cell) == []
    cell.see(builders.make_node("n0", labels={"zone": "2"}))
    assert binds(cell) == []
    cell.see(versioned(builders.make_node("n1", labels={"zone": "1"}), 9))
    assert [bind.node for bind in binds(cell)] == ["n1"]

    cell.see(claimed.device_class(), claimed.claim("d"), claimed.devices("n9", 1))
    cell.see(*gang("h", claimed.pod("h-0", "h", "d")))
    assert binds(cell) == []
    cell.see(builders.make_node("n9"))
    assert [bind.node for bind in binds(cell)] == ["n9"]


def devices_of(found: Sequence[messages.Bind]) -> list[list[str]]:
    return [
        [each.device for each in step.allocation.devices.results]
        for bind in found
        for step in bind.devices
        if step.allocation is not None
    ]


def test_devices_in_flight_are_not_given_away_again() -> None:
    """Until the claim is seen with them; a refused bind frees them."""
    cell = Cell()
    cell.see(*CARDS, claimed.devices("n1", 1), claimed.claim("c1"), claimed.claim("c2"))
    cell.see(*gang("g1", claimed.pod("g1-0", "g1", "c1")))
    assert devices_of(binds(cell)) == [["n1-gpu-0"]]
    cell.see(*gang("g2", claimed.pod("g2-0", "g2", "c2")))
    assert binds(cell) == []
    cell.answer("refused", "g1-0", decision=0)
    assert devices_of(binds(cell)) == [["n1-gpu-0"]]


def test_who_shares_a_claim_in_flight_is_only_put_down_for_it() -> None:
    cell = Cell()
    cell.see(*CARDS, claimed.devices("n1", 1), claimed.claim("c"))
    cell.see(*gang("g1", claimed.pod("g1-0", "g1", "c")))
    assert devices_of(binds(cell)) == [["n1-gpu-0"]]
    cell.see(*gang("g2", claimed.pod("g2-0", "g2", "c")))
    (bind,) = binds(cell)
    assert bind.devices == (messages.ClaimedDevices(claim="c", uid=""),)


def test_the_claim_made_from_a_template_calls_for_a_session() -> None:
    """Its name comes to stand in the pod's status after the pod is there."""
    cell = Cell()
    cell.see(*CARDS, claimed.devices("n1", 1))
    cell.see(*gang("g", claimed.from_template("g-0", "g", None)))
    assert binds(cell) == []
    assert cell.picture.due == ""
    cell.see(claimed.claim("made"))
    cell.see(versioned(claimed.from_template("g-0", "g", "made"), 5))
    assert cell.picture.due
    assert devices_of(binds(cell)) == [["n1-gpu-0"]]


def test_while_a_claim_cannot_be_read_no_devices_are_given_away() -> None:
    """It may have any of them."""
    cell = Cell()
    cell.see(*CARDS, claimed.devices("n1", 1), claimed.claim("c"))
    cell.apply(cell.log.garble(topics.RESOURCE_CLAIMS, "default/other"))
    cell.see(*gang("g", claimed.pod("g-0", "g", "c")))
    decided = cell.session()
    assert decided.decisions == ()
    explained = decided.explanations["default/g"]
    assert explained is not None
    assert "default/other cannot be read" in explained.message


def test_claims_and_decisions_in_any_order_make_the_same_picture() -> None:
    cell = disks(mounting.volume("v"))
    binds(cell)
    cell.see(versioned(mounting.claim("c1"), 7))

    def known(records: Sequence[envelope.Record]) -> list[object]:
        around = fold(records).world.surroundings
        return [around.claims, around.volumes]

    forward = known(cell.log.records)
    for choices in ([0], [1, 5, 2], [7, 3]):
        assert known(topic_log.interleaved(cell.log.records, choices)) == forward
    assert forward[1]["v"].spec.claim_ref.name == "c1"  # type: ignore[index]

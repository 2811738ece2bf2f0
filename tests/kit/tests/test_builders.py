"""Builders make what the real parts would have made."""

import msgspec
import pytest

from stromboli.shared import envelope, snapshot
from stromboli.shared.api import kinds, meta
from stromboli.testkit import builders

MADE: tuple[meta.Object, ...] = (
    builders.make_node(),
    builders.make_pod(group="g1", index=0),
    builders.make_pod_group(min_resources={"cpu": "2"}),
    builders.make_queue(),
    builders.make_priority_class("high", 10),
    builders.make_job(),
    builders.make_command("stop", "AbortJob", builders.make_job()),
)


@pytest.mark.parametrize("obj", MADE, ids=lambda obj: type(obj).__name__)
def test_every_object_is_read_from_its_record_unchanged(obj: meta.Object) -> None:
    """A builder's object survives its topic."""
    record = builders.make_record(builders.snapshot_of(obj))
    assert envelope.decode(record) == obj


@pytest.mark.parametrize("obj", MADE, ids=lambda obj: type(obj).__name__)
def test_a_tombstone_ends_the_object(obj: meta.Object) -> None:
    """A tombstone removes the observed object."""
    snapshot_of_log = snapshot.Snapshot()
    snapshot_of_log.apply(builders.make_record(builders.snapshot_of(obj), 0))
    snapshot_of_log.apply(builders.make_record(builders.tombstone_of(obj), 1))
    assert snapshot_of_log.state(builders.kind_of(obj), obj.metadata.key) is None


def test_a_garbled_record_makes_its_key_unknown() -> None:
    """Garbled means garbled."""
    snapshot_of_log = snapshot.Snapshot()
    topic = builders.snapshot_of(builders.make_node()).topic
    snapshot_of_log.apply(builders.undecodable_record(topic, "n1"))
    assert isinstance(snapshot_of_log.state(kinds.NODES, "n1"), snapshot.Unknown)


def test_a_job_needs_all_of_its_pods_by_default() -> None:
    """minAvailable defaults to the sum of replicas, as at admission."""
    job = builders.make_job(tasks=[builders.make_task(replicas=3), builders.make_task("ps", 2)])
    assert job.spec.min_available == 5
    assert msgspec.json.decode(job.spec.tasks[0].template.spec)["restartPolicy"] == "Never"

"""The cache of the cluster that services build from the log."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.shared import envelope, snapshot, topics
from stromboli.shared.api import core, kinds, meta
from stromboli.shared.messages import cluster
from stromboli.testkit import builders

NODES, PODS = kinds.NODES, kinds.PODS


def seen(*drafts: envelope.Draft) -> snapshot.Snapshot:
    """The cache after these records."""
    cached = snapshot.Snapshot()
    for offset, draft in enumerate(drafts):
        cached.apply(builders.make_record(draft, offset))
    return cached


def observed(version: int, generation: int = 1, cpu: str = "8") -> core.Node:
    return builders.make_node("n1", cpu, version=version, generation=generation)


def is_unknown(cached: snapshot.Snapshot, key: str = "n1") -> bool:
    return isinstance(cached.state(NODES, key), snapshot.Unknown)


# --- newest within a key --------------------------------------------------------------------


def test_a_snapshot_starts_empty() -> None:
    cached = snapshot.Snapshot()
    assert list(cached.objects(NODES)) == []
    assert cached.state(NODES, "n1") is None
    assert cached.get(NODES, "n1") is None


def test_a_change_has_before_after_cause_and_trace() -> None:
    cached = seen(builders.snapshot_of(observed(1)))
    draft = envelope.Draft(
        topic=topics.NODES, key="n1", message=observed(2), time=builders.NOON, traceparent="t"
    )
    record = builders.make_record(draft, 1)
    assert cached.apply(record) == snapshot.Change(
        NODES, "n1", observed(1), observed(2), cause=record.id, traceparent="t"
    )


@pytest.mark.parametrize("version", [4, 5])
def test_an_older_or_equal_version_changes_nothing(version: int) -> None:
    cached = seen(builders.snapshot_of(observed(5)))
    late = builders.make_record(builders.snapshot_of(observed(version, cpu="1")), 1)
    assert cached.apply(late) is None
    assert cached.get(NODES, "n1") == observed(5)


def test_versions_of_an_object_have_one_name_and_uid() -> None:
    """Indexes of 100,000 objects keep the texts of the version that they were built from."""
    cached = snapshot.Snapshot()
    first, second = (
        cached.apply(builders.make_record(builders.snapshot_of(observed(version)), version))
        for version in (1, 2)
    )
    assert first is not None
    assert second is not None
    assert isinstance(first.after, meta.Object)
    assert isinstance(second.after, meta.Object)
    assert first.after.metadata.uid is second.after.metadata.uid
    assert first.after.metadata.name is second.after.metadata.name
    assert (first.after.metadata.version, second.after.metadata.version) == (1, 2)


def test_versions_compare_as_numbers() -> None:
    cached = seen(builders.snapshot_of(observed(9)), builders.snapshot_of(observed(10)))
    assert cached.get(NODES, "n1") == observed(10)


def test_a_new_uid_under_an_old_key_replaces_it_whatever_its_version() -> None:
    again = observed(1, generation=2)
    cached = seen(builders.snapshot_of(observed(5)))
    change = cached.apply(builders.make_record(builders.snapshot_of(again), 1))
    assert change is not None
    assert (change.before, change.after) == (observed(5), again)


def test_a_record_of_another_topic_changes_nothing() -> None:
    sync = envelope.Draft(
        topic=topics.SYNC,
        key="nodes",
        message=cluster.KindSynced(
            kind="nodes", state="synced", resource_version="1", at=builders.NOON
        ),
        time=builders.NOON,
    )
    assert snapshot.Snapshot().apply(builders.make_record(sync)) is None


# --- deletion -------------------------------------------------------------------------------


def test_a_tombstone_removes() -> None:
    cached = seen(builders.snapshot_of(observed(1)), builders.tombstone_of(observed(2)))
    assert cached.state(NODES, "n1") is None


def test_a_tombstone_of_an_older_object_removes_nothing() -> None:
    again = observed(3, generation=2)
    cached = seen(builders.snapshot_of(again), builders.tombstone_of(observed(2)))
    assert cached.get(NODES, "n1") == again


def test_a_tombstone_of_an_absent_object_changes_nothing() -> None:
    cached = snapshot.Snapshot()
    assert cached.apply(builders.make_record(builders.tombstone_of(observed(1)))) is None


def test_a_late_record_does_not_restore_a_deleted_object() -> None:
    cached = seen(builders.snapshot_of(observed(1)), builders.tombstone_of(observed(2)))
    assert cached.observe(NODES, observed(3)) is None
    assert cached.state(NODES, "n1") is None


def test_a_new_object_with_a_deleted_name_exists() -> None:
    again = observed(4, generation=2)
    cached = seen(
        builders.snapshot_of(observed(1)),
        builders.tombstone_of(observed(2)),
        builders.snapshot_of(again),
    )
    assert cached.get(NODES, "n1") == again


# --- unknown --------------------------------------------------------------------------------


def test_an_undecodable_object_is_unknown_and_neither_old_nor_absent() -> None:
    cached = seen(builders.snapshot_of(observed(1)))
    change = cached.apply(builders.undecodable_record(topics.NODES, "n1", 1))
    assert change is not None
    assert is_unknown(cached)
    assert cached.get(NODES, "n1") is None
    assert list(cached.objects(NODES)) == []
    assert list(cached.unknowns(NODES)) == ["n1"]


def test_a_stub_makes_its_object_unknown_with_the_reason() -> None:
    unreadable = cluster.Unreadable(uid="u", resource_version="2", reason="too large")
    cached = seen(
        builders.snapshot_of(observed(1)),
        envelope.Draft(topic=topics.NODES, key="n1", message=unreadable, time=builders.NOON),
    )
    assert cached.state(NODES, "n1") == snapshot.Unknown("too large")


def test_unknown_ends_with_the_next_record_that_is_read() -> None:
    cached = snapshot.Snapshot()
    cached.apply(builders.undecodable_record(topics.NODES, "n1", 0))
    cached.apply(builders.make_record(builders.snapshot_of(observed(1)), 1))
    assert cached.get(NODES, "n1") == observed(1)
    cached.apply(builders.undecodable_record(topics.NODES, "n1", 2))
    cached.apply(builders.make_record(builders.tombstone_of(observed(2)), 3))
    assert cached.state(NODES, "n1") is None


# --- our own writes -------------------------------------------------------------------------


def test_the_response_to_our_own_write_is_ahead_of_the_topic() -> None:
    cached = seen(builders.snapshot_of(observed(1)))
    assert cached.observe(NODES, observed(3, cpu="4")) is not None
    assert cached.apply(builders.make_record(builders.snapshot_of(observed(2)), 1)) is None
    assert cached.get(NODES, "n1") == observed(3, cpu="4")


def test_an_old_response_does_not_replace_a_newer_object_of_another_uid() -> None:
    again = observed(9, generation=2)
    cached = seen(builders.snapshot_of(again))
    assert cached.observe(NODES, observed(3)) is None
    assert cached.get(NODES, "n1") == again


def test_an_object_deleted_by_the_service_is_absent_immediately() -> None:
    cached = seen(builders.snapshot_of(observed(1)))
    uid = observed(1).metadata.uid
    assert cached.forget(NODES, "n1", "of another") is None
    assert cached.forget(NODES, "n1", uid) is not None
    assert cached.apply(builders.make_record(builders.snapshot_of(observed(2)), 1)) is None
    assert cached.state(NODES, "n1") is None


def test_a_late_record_of_the_previous_object_does_not_hide_the_new_one() -> None:
    """Its deletion is known from a response of the API server; the topic contains it only later."""
    again = observed(9, generation=2)
    cached = seen(builders.snapshot_of(observed(1)))
    cached.forget(NODES, "n1", observed(1).metadata.uid)
    cached.observe(NODES, again)
    for offset, late in enumerate(
        (builders.snapshot_of(observed(2)), builders.tombstone_of(observed(3))), 1
    ):
        assert cached.apply(builders.make_record(late, offset)) is None
    assert cached.get(NODES, "n1") == again


def test_an_object_read_from_the_topic_is_replaced_by_another_uid() -> None:
    """Versions of different objects are compared only as long as a response is ahead."""
    cached = seen(builders.snapshot_of(observed(1)))
    cached.observe(NODES, observed(5))
    cached.apply(builders.make_record(builders.snapshot_of(observed(5)), 1))
    again = observed(2, generation=2)
    assert cached.apply(builders.make_record(builders.snapshot_of(again), 2)) is not None
    assert cached.get(NODES, "n1") == again


def test_a_repeated_append_restores_no_older_state() -> None:
    """Its acknowledgement was lost, so all of it is in the topic twice, and is read in parts."""
    again = observed(3, generation=2)
    append = [
        builders.snapshot_of(observed(1)),
        builders.tombstone_of(observed(2)),
        builders.snapshot_of(again),
    ]
    cached = seen(*append)
    for offset, draft in enumerate(append, len(append)):
        assert cached.apply(builders.make_record(draft, offset)) is None
        assert cached.get(NODES, "n1") == again


def test_an_object_newer_than_its_tombstone_exists_again() -> None:
    """Its kind was not served for a while, so the monitor had published that it has no objects."""
    cached = seen(builders.snapshot_of(observed(5)))
    none = msgspec.structs.replace(builders.tombstone_of(observed(5)), object_version="0")
    cached.apply(builders.make_record(none, 1))
    assert cached.apply(builders.make_record(builders.snapshot_of(observed(5)), 2)) is not None
    assert cached.get(NODES, "n1") == observed(5)


# --- order and repetition -------------------------------------------------------------------


def histories() -> st.SearchStrategy[list[list[envelope.Record]]]:
    """Records for some keys: each object is created, changed, made unreadable and deleted in any
    order.
    """
    step = st.sampled_from(["change", "garble", "remove"])
    return st.lists(st.lists(step, min_size=1, max_size=6), min_size=1, max_size=5).map(
        lambda plans: [_history(place, plan) for place, plan in enumerate(plans)]
    )


def _history(place: int, plan: Sequence[str]) -> list[envelope.Record]:
    generation = 1
    records = []
    for version, step in enumerate(plan, 1):
        obj: meta.Object
        if place % 2:
            obj = builders.make_node(f"n{place}", version=version, generation=generation)
        else:
            obj = builders.make_pod(f"p{place}", version=version, generation=generation)
        if step == "garble":
            topic = builders.snapshot_of(obj).topic
            records.append(builders.undecodable_record(topic, obj.metadata.key, version))
        elif step == "remove":
            records.append(builders.make_record(builders.tombstone_of(obj), version))
            generation += 1
        else:
            records.append(builders.make_record(builders.snapshot_of(obj), version))
    return records


def snapshot_from(records: Sequence[envelope.Record]) -> dict[str, Any]:
    cached = snapshot.Snapshot()
    for record in records:
        cached.apply(record)
    return {
        record.key: cached.state(PODS if record.topic == topics.PODS else NODES, record.key)
        for record in sorted(records, key=lambda record: record.key)
    }


@given(histories(), st.data())
def test_any_interleaving_that_keeps_the_order_of_keys_gives_the_same_cache(
    keys: list[list[envelope.Record]], data: st.DataObject
) -> None:
    turns = [place for place, records in enumerate(keys) for _ in records]
    shuffled = data.draw(st.permutations(turns))
    left = [iter(records) for records in keys]
    in_a_row = [record for records in keys for record in records]
    assert snapshot_from([next(left[place]) for place in shuffled]) == snapshot_from(in_a_row)


@given(histories(), st.data())
def test_a_repeated_record_changes_nothing(
    keys: list[list[envelope.Record]], data: st.DataObject
) -> None:
    """At least once: after a reconnection a reader is given some records again, in order."""
    once = [record for records in keys for record in records]
    begin = data.draw(st.integers(0, len(once)))
    end = data.draw(st.integers(begin, len(once)))
    assert snapshot_from([*once[:end], *once[begin:]]) == snapshot_from(once)


@given(histories())
def test_reading_again_from_the_start_changes_nothing(
    keys: list[list[envelope.Record]],
) -> None:
    once = [record for records in keys for record in records]
    assert snapshot_from([*once, *once]) == snapshot_from(once)


# --- sync -----------------------------------------------------------------------------------


def synced(kind: str, state: Any = "synced", position: int = 0) -> envelope.Record:
    """By a monitor with an arbitrary clock."""
    message = cluster.KindSynced(
        kind=kind, state=state, resource_version="1", at=builders.NOON, position=position
    )
    return builders.make_record(
        envelope.Draft(topic=topics.SYNC, key=kind, message=message, time=builders.NOON)
    )


def missing(
    sync: snapshot.Sync, now_s: float = 0.0, positions: dict[str, int] | None = None
) -> tuple[str, ...]:
    return sync.missing((NODES, PODS), now_s, 15.0, positions or {})


def test_no_kind_is_missing_when_all_were_synced_recently() -> None:
    sync = snapshot.Sync()
    assert missing(sync) == ("nodes not synced yet", "pods not synced yet")
    sync.apply(synced("nodes"), 0.0)
    sync.apply(synced("pods", "listing"), 0.0)
    assert missing(sync) == ("pods not synced yet",)
    sync.apply(synced("pods"), 0.0)
    assert missing(sync, 15.0) == ()


def test_a_kind_that_was_not_synced_recently_is_missing() -> None:
    """Its monitor may be down: the cache may be as old as the last marker."""
    sync = snapshot.Sync()
    sync.apply(synced("nodes"), 0.0)
    sync.apply(synced("pods"), 10.0)
    assert missing(sync, 20.0) == ("nodes last seen 20 s ago",)


def test_sync_markers_from_before_the_start_do_not_count() -> None:
    """Its monitor may have stopped since; only a new marker proves that it runs."""
    sync = snapshot.Sync()
    sync.apply(synced("nodes"))
    sync.apply(synced("pods"), 0.0)
    assert missing(sync) == ("nodes not seen since this process began to read",)
    sync.apply(synced("nodes"), 0.0)
    assert missing(sync) == ()


def test_a_kind_is_missing_until_its_snapshots_are_read_as_far_as_it_was_synced() -> None:
    """A topic that ends before has lost records."""
    sync = snapshot.Sync()
    sync.apply(synced("nodes", position=7), 0.0)
    sync.apply(synced("pods"), 0.0)
    assert missing(sync, positions={topics.NODES.name: 6}) == ("nodes not read up to 7 yet",)
    assert missing(sync, positions={topics.NODES.name: 7}) == ()


def test_a_kind_that_is_listed_again_or_unreadable_is_missing() -> None:
    sync = snapshot.Sync()
    for kind in ("nodes", "pods"):
        sync.apply(synced(kind), 0.0)
    sync.apply(synced("nodes", "listing"), 0.0)
    sync.apply(builders.undecodable_record(topics.SYNC, "pods"))
    assert missing(sync) == ("nodes not synced yet", "pods not synced yet")

"""The envelope: what every consumer in any language finds in a record's headers."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from stromboli.shared import envelope, errors, topics
from stromboli.shared.messages import base, log
from stromboli.testkit import builders, records

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def headers(draft: envelope.Draft) -> dict[str, str]:
    return envelope.seal(draft, "controller", 41, 7, cluster_name="default")[0]


def record(
    type_name: str = "", offset: int = 0, topic: topics.Topic = topics.PODS, **others: str
) -> envelope.Record:
    """A record as a stranger may have written it."""
    return envelope.Record(topic, offset, "k", b"{}", {"ce_type": type_name, **others})


def test_a_record_is_a_cloud_event() -> None:
    assert headers(records.phase_change()) == {
        "ce_specversion": "1.0",
        "ce_id": "controller/41/7",
        "ce_type": "stromboli.batch.job_phase_changed.v1",
        "ce_source": "/clusters/default/controller",
        "ce_cluster": "default",
        "ce_time": "2026-01-01T12:00:00.000000Z",
        "content-type": "application/json",
    }


def test_empty_fields_have_no_header() -> None:
    assert (
        headers(builders.snapshot_of(builders.make_node()))
        .keys()
        .isdisjoint({"ce_cause", "traceparent", "ce_objectuid", "ce_objectversion"})
    )


def test_cause_and_trace_have_headers_of_their_own() -> None:
    made = records.phase_change()
    draft = envelope.Draft(
        topic=made.topic,
        key=made.key,
        message=made.message,
        time=made.time,
        cause="scheduler/1/2",
        traceparent=TRACE,
    )
    read = builders.make_record(draft)
    assert (read.headers["ce_cause"], read.headers["traceparent"]) == ("scheduler/1/2", TRACE)
    assert (read.cause, read.traceparent) == ("scheduler/1/2", TRACE)


def test_a_tombstone_has_no_value_but_uid_and_version() -> None:
    node = builders.make_node(version=7)
    sealed, value = envelope.seal(
        builders.tombstone_of(node), "monitor", 1, 1, cluster_name="default"
    )
    assert value is None
    assert sealed["ce_type"] == "stromboli.cluster.object_gone.v1"
    assert (sealed["ce_objectuid"], sealed["ce_objectversion"]) == (node.metadata.uid, "7")
    assert "content-type" not in sealed


def test_equal_drafts_have_equal_bytes() -> None:
    draft = builders.snapshot_of(builders.make_pod(annotations={"b": "1", "a": "2"}))
    other = builders.snapshot_of(builders.make_pod(annotations={"a": "2", "b": "1"}))
    assert envelope.seal(draft, "monitor", 1, 2, cluster_name="default") == envelope.seal(
        other, "monitor", 1, 2, cluster_name="default"
    )


def test_times_are_in_utc_with_microseconds() -> None:
    for time in (
        datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
        datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))),
    ):
        made = records.phase_change()
        draft = envelope.Draft(topic=made.topic, key=made.key, message=made.message, time=time)
        assert builders.make_record(draft).time == time


@pytest.mark.parametrize("time", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_time_that_cannot_be_read_is_undecodable(time: str) -> None:
    with pytest.raises(errors.UndecodableError, match="ce_time"):
        _ = record(ce_time=time).time


def test_a_message_is_rejected_on_foreign_topics() -> None:
    node = builders.make_node()
    unmanaged = envelope.Draft(topic=topics.PODS, key="k", message=node, time=builders.NOON)
    with pytest.raises(ValueError, match=r"Node does not belong on cluster\.pods"):
        headers(unmanaged)


def test_a_message_that_is_encoded_already_makes_the_same_record() -> None:
    draft = builders.snapshot_of(builders.make_pod())
    assert draft.message is not None
    encoded = envelope.Encoded(base.type_name(draft.message), base.encode(draft.message))
    bare = msgspec.structs.replace(draft, message=None, encoded=encoded)
    assert envelope.seal(bare, "monitor", 1, 2, cluster_name="default") == envelope.seal(
        draft, "monitor", 1, 2, cluster_name="default"
    )


@pytest.mark.parametrize("name", ["stromboli.batch.job_phase_changed.v1", "of.no.service"])
def test_an_encoded_message_is_rejected_on_foreign_topics(name: str) -> None:
    encoded = envelope.Encoded(name, b"{}")
    misplaced = envelope.Draft(
        topic=topics.PODS, key="k", message=None, encoded=encoded, time=builders.NOON
    )
    with pytest.raises(ValueError, match=r"does not belong on cluster\.pods"):
        headers(misplaced)


@pytest.mark.parametrize(
    ("event_id", "epoch"),
    [
        ("controller/41/7", 41),
        ("", None),
        ("somebody-else", None),
        ("a/b/c", None),
        ("a/-1/c", None),
        ("a/1/2/3", None),
    ],
)
def test_only_internal_ids_have_an_epoch(event_id: str, epoch: int | None) -> None:
    assert record(ce_id=event_id).epoch == epoch


@pytest.mark.parametrize(("floor", "epoch"), [(0, 17), (17, 17), (18, 18)])
def test_the_opened_record_determines_the_epoch(floor: int, epoch: int) -> None:
    """Its offset or its floor: a recreated topic starts at offset 0, and epochs never go back."""
    opened = log.Opened(writer="monitor", instance="m", floor=floor)
    draft = envelope.Draft(
        topic=topics.SYNC, key=log.OPENED_KEY, message=opened, time=builders.NOON
    )
    assert builders.make_record(draft, 17).epoch == epoch


@pytest.mark.parametrize(
    "value", [b"{", b'{"writer":"m","instance":"m","floor":9007199254740992}', None]
)
def test_an_unreadable_opened_record_has_no_epoch(value: bytes | None) -> None:
    headers = {"ce_type": log.OPENED}
    assert envelope.Record(topics.SYNC, 17, log.OPENED_KEY, value, headers).epoch is None


# --- decoding -------------------------------------------------------------------------------


def test_a_sealed_record_decodes() -> None:
    pod = builders.make_pod(group="g1")
    assert envelope.decode(builders.make_record(builders.snapshot_of(pod))) == pod
    assert envelope.decode(builders.make_record(builders.tombstone_of(pod))) is None


@pytest.mark.parametrize(
    "name",
    ["", "stromboli.cluster.pod_observed.v99", "stromboli.cluster.node_observed.v1"],
    ids=["none", "of tomorrow", "of another topic"],
)
def test_a_type_of_another_topic_is_undecodable(name: str) -> None:
    with pytest.raises(errors.UndecodableError, match="does not belong on this topic"):
        envelope.decode(record(name))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"metadata":{"name":7}}', b"\xff"])
def test_a_value_that_is_not_of_its_type_is_undecodable(value: bytes) -> None:
    bad = envelope.Record(
        topics.PODS, 3, "k", value, {"ce_type": "stromboli.cluster.pod_observed.v1"}
    )
    with pytest.raises(errors.UndecodableError, match=r"cluster\.pods@3 key 'k'"):
        envelope.decode(bad)

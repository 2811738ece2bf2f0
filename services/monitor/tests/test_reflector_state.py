"""The rules of the state of a kind, one by one; test_reflector_state_machine has all of them
together.
"""

import pytest

from services.monitor.tests import simulation
from stromboli.monitor.core.reflector_state import ReflectorState
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.messages import base, cluster
from stromboli.testkit import builders


@pytest.fixture
def nodes() -> simulation.Cluster:
    return simulation.Cluster()


@pytest.fixture
def log() -> simulation.Log:
    return simulation.Log()


def said(monitor: simulation.Monitor) -> list[tuple[str, bool]]:
    """Keys of the published records, and whether the object exists."""
    return [(draft.key, draft.message is not None) for draft in monitor.said]


def test_the_first_monitor_lists(nodes: simulation.Cluster, log: simulation.Log) -> None:
    nodes.put("a", 1)
    monitor = simulation.Monitor(nodes, log)
    assert monitor.cached.state == "must_list"
    monitor.settle()
    assert said(monitor) == [("a", True)]
    assert monitor.cached.version == "1"


def test_a_change_of_unread_fields_is_not_published(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    nodes.put("a", 1)
    monitor = simulation.Monitor(nodes, log)
    monitor.settle()
    nodes.put("a", 1)
    nodes.put("a", 2)
    monitor.settle()
    assert said(monitor) == [("a", True)] * 2
    assert monitor.cached.version == "3"


def test_a_restart_without_changes_publishes_only_sync_markers(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    for name in ("a", "b"):
        nodes.put(name, 1)
    nodes.delete("b")
    simulation.Monitor(nodes, log).settle()
    end = log.ends[topics.SYNC.name]
    again = simulation.Monitor(nodes, log)
    assert again.cached.state == "watching"
    again.settle()
    assert again.said == []
    (_, sync_marker) = log.records[topics.SYNC.name][end:]
    assert envelope.decode(sync_marker) == cluster.KindSynced(
        kind="nodes",
        state="synced",
        resource_version="3",
        at=simulation.NOW,
        position=3,
        projection=again.cached.signature,
    )


def test_a_deletion_during_an_outage_is_a_tombstone(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    """Sent by the resumed watch, or derived from a complete list if that has expired."""
    for name in ("a", "b"):
        nodes.put(name, 1)
    simulation.Monitor(nodes, log).settle()
    nodes.delete("a")
    resumed = simulation.Monitor(nodes, log)
    resumed.settle()
    assert said(resumed) == [("a", False)]
    assert resumed.said[0].object_uid == "node-a"
    nodes.delete("b")
    nodes.forget()
    listed = simulation.Monitor(nodes, log)
    listed.settle()
    assert said(listed) == [("b", False)]


def test_a_list_publishes_objects_that_may_have_changed_in_between(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    """A client that knows of a version in between, by its own write, learns that it was
    replaced.
    """
    for name in ("a", "b"):
        nodes.put(name, 1)
    simulation.Monitor(nodes, log).settle()
    nodes.put("a", 2)
    nodes.put("a", 1)
    nodes.forget()
    monitor = simulation.Monitor(nodes, log)
    monitor.settle()
    assert said(monitor) == [("a", True)]
    (*_, last) = log.records[topics.NODES.name]
    assert (
        envelope.decode(last)
        == builders.snapshot_of(kinds.NODES.decode(nodes.objects["a"])).message
    )


def test_half_a_list_deletes_nothing(nodes: simulation.Cluster, log: simulation.Log) -> None:
    for name in ("a", "b"):
        nodes.put(name, 1)
    simulation.Monitor(nodes, log).settle()
    monitor = simulation.Monitor(nodes, log)
    monitor.cached.expired()
    monitor.cached.list_begins()
    assert monitor.cached.upsert(nodes.objects["a"], simulation.NOW) is None
    assert monitor.cached.sync_point(simulation.NOW).state == "listing"
    monitor.cached.list_begins()
    for raw in nodes.objects.values():
        assert monitor.cached.upsert(raw, simulation.NOW) is None
    assert monitor.cached.list_ends("2", simulation.NOW) == []


def test_a_new_object_with_an_old_name_is_published(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    nodes.put("a", 1)
    simulation.Monitor(nodes, log).settle()
    nodes.delete("a")
    nodes.put("a", 1)
    nodes.forget()
    monitor = simulation.Monitor(nodes, log)
    monitor.settle()
    assert said(monitor) == [("a", True)]
    assert log.cached() == nodes.truth()


def test_events_older_than_the_state_are_ignored(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    """A monitor that died between its drafts and its sync leaves a log that is ahead."""
    first = simulation.Monitor(nodes, log)
    first.settle()
    for cpu in (1, 2):
        nodes.put("a", cpu)
    nodes.put("b", 1)
    nodes.delete("b")
    while first.watch():
        first.append()
    second = simulation.Monitor(nodes, log)
    assert second.cached.version == "0"
    second.settle()
    assert second.said == []


def test_a_log_that_lost_its_tail_is_listed_again(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    for name in ("a", "b", "c"):
        nodes.put(name, 1)
    simulation.Monitor(nodes, log).settle()
    log.lose_tail(2)
    monitor = simulation.Monitor(nodes, log)
    assert monitor.cached.state == "must_list"
    monitor.settle()
    assert said(monitor) == [("b", True), ("c", True)]


def test_another_projection_lists_again(nodes: simulation.Cluster, log: simulation.Log) -> None:
    """Records of an older version of the monitor lack fields that this one reads."""
    sync_marker = cluster.KindSynced(
        kind="nodes", state="synced", resource_version="7", at=simulation.NOW, projection="older"
    )
    cached = ReflectorState(simulation.KIND)
    cached.apply_sync(sync_marker, 0)
    cached.open(0)
    assert cached.state == "must_list"


def test_a_garbled_record_is_replaced(nodes: simulation.Cluster, log: simulation.Log) -> None:
    """By the object as it is, or by a tombstone."""
    for name in ("a", "b"):
        nodes.put(name, 1)
    first = simulation.Monitor(nodes, log)
    first.settle()
    for name in ("a", "x"):
        offset = log.append(builders.snapshot_of(builders.make_node(name)), first.epoch)
        log.records[simulation.TOPIC.name][-1] = builders.undecodable_record(
            simulation.TOPIC, name, offset
        )
    monitor = simulation.Monitor(nodes, log)
    assert set(monitor.cached.overwritten) == {"a", "x"}
    monitor.settle()
    assert log.cached() == nodes.truth()


def test_the_last_record_of_a_replaced_monitor_is_overwritten(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    """Even if its successor, who would have seen it, died before it could."""
    nodes.put("a", 1)
    paused = simulation.Monitor(nodes, log)
    paused.list()
    nodes.delete("a")
    successor = simulation.Monitor(nodes, log)
    successor.settle()
    paused.append()
    assert log.cached() == {}, "opening fenced it here, too"
    third = simulation.Monitor(nodes, log)
    assert third.cached.state == "watching"
    third.settle()
    assert log.cached() == {}


def test_nothing_is_marked_as_synced_while_something_is_hidden(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    nodes.put("a", 1)
    paused = simulation.Monitor(nodes, log)
    paused.list()
    monitor = simulation.Monitor(nodes, log)
    monitor.settle()
    end = log.ends[topics.SYNC.name]
    paused.append()
    monitor.mark_synced()
    assert monitor.cached.overwritten == ("a",)
    assert log.ends[topics.SYNC.name] == end
    monitor.settle()
    assert log.ends[topics.SYNC.name] == end + 1


def test_an_answer_older_than_the_watch_restores_nothing(
    nodes: simulation.Cluster, log: simulation.Log
) -> None:
    nodes.put("a", 1)
    old = nodes.objects["a"]
    nodes.put("a", 2)
    monitor = simulation.Monitor(nodes, log)
    monitor.settle()
    monitor.cached.mark_overwritten("a")
    assert monitor.cached.restore("a", old, simulation.NOW) is None
    assert monitor.cached.overwritten == ("a",)
    restored = monitor.cached.restore("a", nodes.objects["a"], simulation.NOW)
    assert restored is not None
    assert restored.message is not None
    assert base.encode(restored.message) == nodes.objects["a"]

"""Changes of nodes, queues, priority classes and the configuration; on both databases."""

import itertools
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.history.tests.support import events
from stromboli.history.core import folding
from stromboli.history.core.rows import Rows
from stromboli.history.store import change_queries, database, retention, writer
from stromboli.history.store.database import Database
from stromboli.shared import envelope, errors, topics
from stromboli.shared.api import core, kinds
from stromboli.shared.api.views import accounting
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster, node_topology, scheduling
from stromboli.testkit import builders
from stromboli.testkit.builders import make_node, make_queue, make_record, snapshot_of, tombstone_of


def node(version: int, **changes: Any) -> core.Node:
    """A node of this resourceVersion."""
    made = make_node("n1", version=version)
    spec = msgspec.structs.replace(made.spec, **changes)
    return msgspec.structs.replace(made, spec=spec)


def at(draft: envelope.Draft, second: float) -> envelope.Record:
    return make_record(msgspec.structs.replace(draft, time=events.at(second)))


async def apply(store: Database, *records: envelope.Record) -> None:
    made = writer.Writer(store)
    begin = (await made.position()).positions.get("cluster.nodes", 0)
    position = port.Position({"cluster.nodes": begin + len(records)}, {}, {})
    assert await made.apply(records, position) == []


async def changes(store: Database, **query: Any) -> list[tuple[str, str, datetime, Any]]:
    page = await change_queries.changes(store, accounting.ChangeQuery(**query))
    return [
        (it.name, it.action, it.at, [(each.field, each.before, each.after) for each in it.fields])
        for it in page.changes
    ]


async def test_a_node_is_created_changed_and_deleted_with_the_fields_that_differ(
    store: Database,
) -> None:
    taint = core.Taint(key="gpu", value="bad", effect="NoSchedule")
    records = [
        at(snapshot_of(node(1)), 5),
        at(snapshot_of(node(2, unschedulable=True, taints=(taint,))), 20),
        at(snapshot_of(node(3, unschedulable=True, taints=(taint,))), 30),
        at(tombstone_of(node(3)), 40),
    ]
    await apply(store, *records)
    created = node(1).metadata.creation_timestamp
    expected = [
        ("n1", "deleted", events.at(40), []),
        (
            "n1",
            "changed",
            events.at(20),
            [("taints.gpu:NoSchedule", "", "bad"), ("unschedulable", "", "true")],
        ),
        ("n1", "created", created, []),
    ]
    assert await changes(store) == expected
    await apply(store, *records)  # redelivered, as after a kill before the position was known
    assert await changes(store, kind="Node", name="n1") == expected
    assert await changes(store, kind="Queue") == []
    assert await changes(store, until=events.at(20), since=events.at(20)) == []


async def test_a_new_object_of_a_name_is_created_again(store: Database) -> None:
    again = node(9)
    metadata = msgspec.structs.replace(again.metadata, uid="another")
    again = msgspec.structs.replace(again, metadata=metadata)
    await apply(store, make_record(snapshot_of(node(1))), make_record(snapshot_of(again)))
    assert [it[1] for it in await changes(store)] == ["created", "created"]


async def test_a_queue_and_the_configuration_change(store: Database) -> None:
    def session(digest: str, second: float) -> envelope.Record:
        message = scheduling.SessionRecorded(
            session=1, offsets={}, now=events.at(second), configuration=digest
        )
        draft = envelope.Draft(
            topic=topics.DECISIONS, key="$session", message=message, time=events.at(second)
        )
        return at(draft, second)

    await apply(
        store,
        at(snapshot_of(make_queue("research", weight=2, version=1)), 1),
        at(snapshot_of(make_queue("research", weight=4, version=2)), 2),
        session("a1", 3),
        session("a1", 4),
        session("b2", 5),
    )
    assert await changes(store, kind="Queue", since=events.at(2)) == [
        ("research", "changed", events.at(2), [("spec.weight", "2", "4")])
    ]
    assert await changes(store, kind="Configuration") == [
        ("scheduler", "changed", events.at(5), [("digest", "a1", "b2")]),
        ("scheduler", "created", events.at(3), []),
    ]


async def test_changes_are_on_pages_without_gaps_and_expire(store: Database) -> None:
    names = [f"n{number}" for number in range(7)]
    await apply(store, *(make_record(snapshot_of(make_node(name))) for name in names))
    shown, after = [], ""
    while True:
        query = accounting.ChangeQuery(limit=3, after=after)
        page = await change_queries.changes(store, query)
        shown += [it.name for it in page.changes]
        after = page.continue_
        if not after:
            break
    assert sorted(shown) == names
    with pytest.raises(errors.InvalidError, match="continue"):
        await change_queries.changes(store, accounting.ChangeQuery(after="nonsense"))
    assert await retention.delete_expired(store, "cluster_changes", 2**60) == 7


def test_a_node_that_the_monitor_could_not_read_is_no_change() -> None:
    message = cluster.Unreadable(uid="u", resource_version="3", reason="too large")
    stub = envelope.Draft(topic=topics.NODES, key="n1", message=message, time=builders.NOON)
    assert folding.decode(make_record(stub)) is None
    garbled = envelope.Record(topics.NODES, 0, "n1", b"[]", {"ce_type": kinds.NODES.plural})
    with pytest.raises(errors.UndecodableError):
        folding.decode(garbled)


STATES = st.lists(
    st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), min_size=1, max_size=8
)


@given(STATES)
def test_known_facts_are_those_of_the_newest_version_and_each_change_is_once(
    found: list[tuple[int, bool, bool]],
) -> None:
    """Whatever comes twice or late."""
    records = [
        make_record(tombstone_of(node(version)) if is_end else snapshot_of(
            node(version, unschedulable=is_off)
        ))
        for version, is_off, is_end in found
    ]  # fmt: skip
    rows = Rows()
    for record in records:
        event = folding.decode(record)
        assert event is not None
        before = len(rows.changes)
        folding.fold(rows, event)
        folding.fold(rows, event)
        assert len(rows.changes) - before <= 1
    versions = [version for version, _, is_end in found if not is_end]
    known = rows.objects.get(("Node", "n1"))
    assert (known is None) == (not versions)
    if known is not None:
        assert known.version <= max(versions)
    actions = [it.action for it in rows.changes]
    assert all(
        later in accounting.ACTIONS and (first, later) != ("deleted", "deleted")
        for first, later in itertools.pairwise(actions)
    )


async def test_tables_of_version_6_go_forward_and_back_with_their_rows(store: Database) -> None:
    await apply(store, make_record(snapshot_of(node(1))))
    async with store.transaction() as connection:
        await connection.run_sync(lambda it: database.downgrade(it, "0006"))
    assert await store.version() == "0006"
    await store.migrate()
    assert await store.version() == database.HEAD
    await apply(store, make_record(snapshot_of(node(1))))
    assert [it[1] for it in await changes(store)] == ["created"]


def hardware(second: float, *gpus: node_topology.Gpu) -> envelope.Record:
    """The agent of the node n1 reports its GPUs."""
    message = node_topology.TopologyObserved(
        node="n1", at=events.at(second), topology=node_topology.NodeTopology(gpus=gpus)
    )
    draft = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=message, time=events.at(second))
    return make_record(draft)


def gpu(number: int, *problems: str) -> node_topology.Gpu:
    return node_topology.Gpu(index=number, uuid=f"GPU-{number}", problems=problems)


async def test_errors_of_gpus_are_changes_of_the_hardware_of_their_node(store: Database) -> None:
    records = [
        hardware(1, gpu(0), gpu(1, "Xid 79")),
        hardware(2, gpu(0), gpu(1, "Xid 79")),
        hardware(3, gpu(0, "Xid 48", "row remapping failed"), gpu(1)),
        hardware(4, gpu(1)),
    ]
    await apply(store, *records)
    expected = [
        ("n1", "changed", events.at(4), [("gpus.GPU-0", "Xid 48; row remapping failed", "")]),
        (
            "n1",
            "changed",
            events.at(3),
            [
                ("gpus.GPU-0", "healthy", "Xid 48; row remapping failed"),
                ("gpus.GPU-1", "Xid 79", "healthy"),
            ],
        ),
        ("n1", "created", events.at(1), [("gpus.GPU-1", "healthy", "Xid 79")]),
    ]
    assert await changes(store, kind="Hardware") == expected
    await apply(store, *records)
    assert await changes(store, kind="Hardware", name="n1") == expected


async def test_a_node_without_gpus_has_no_hardware_to_change(store: Database) -> None:
    deleted = envelope.Draft(topic=topics.TOPOLOGY, key="n1", message=None, time=events.at(2))
    await apply(store, hardware(1), make_record(deleted))
    assert await changes(store) == []

"""What the cache of each node should have, as the scheduler publishes it."""

from datetime import timedelta
from typing import Any

import msgspec

from services.scheduler.tests.support import data_objects
from services.scheduler.tests.support.data_objects import notes, report, request
from services.scheduler.tests.support.harness import draft
from stromboli.scheduler import engine
from stromboli.scheduler.core import actions, plugins, policy
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.cluster import data_copies
from stromboli.scheduler.core.config import config_reader
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta
from stromboli.shared.bus import port
from stromboli.shared.messages import cluster, data
from stromboli.testkit import builders, topic_log

EPOCH = 5
DOCUMENT = {
    "actions": "enqueue, allocate",
    "tiers": [{"plugins": [{"name": name} for name in ("gang", "predicates", "data-locality")]}],
}
POLICY = policy.Policy(
    configured=config_reader.read_configuration(DOCUMENT, actions.NAMES, plugins.NAMES)
)


class Scheduling:
    """An engine, and the log that it reads and writes."""

    def __init__(self, *objects: meta.Object, published: tuple[data.DataWanted, ...] = ()) -> None:
        self.engine = engine.Engine(POLICY, 0, EPOCH, timedelta(seconds=60))
        self._published: dict[str, data.DataWanted | None] = {}
        self.log = topic_log.TopicLog()
        records = self.log.see(builders.make_queue(), *objects)
        for kind in cluster_cache.KINDS:
            synced = cluster.KindSynced(
                kind=kind.plural, state="synced", resource_version="1", at=builders.NOON
            )
            records.append(self.log.append(draft(topics.SYNC, kind.plural, synced)))
        for message in published:
            records.append(self.log.append(draft(topics.DATA_WANTED, message.node, message)))
        self.read(*records)

    def read(self, *records: envelope.Record, fenced: tuple[envelope.Record, ...] = ()) -> None:
        positions = {record.topic.name: record.offset + 1 for record in records}
        batch = port.Batch(
            records,
            port.Position(positions),
            caught_up=True,
            fenced=fenced,
            at_end={topics.SYNC.name: 0.0},
        )
        self._note(self.engine.step([batch], builders.NOON, may_decide=False))

    def step(self) -> dict[str, data.DataWanted | None]:
        """Run the sessions that are due; what was published for caches since the last call."""
        for _ in range(2):
            self._note(self.engine.step([], builders.NOON, may_decide=True))
        found, self._published = self._published, {}
        return found

    def _note(self, step: engine.StepResult) -> None:
        publication = step.publication or engine.Publication((), {})
        for each in publication.explanations.values():
            if each.topic == topics.DATA_WANTED:
                assert each.message is None or isinstance(each.message, data.DataWanted)
                self._published[each.key] = each.message
        if publication.decisions:
            self.read(*(self.log.append(each) for each in publication.decisions))


def items(message: data.DataWanted | None) -> list[tuple[str, int, bool, str]]:
    assert message is not None
    return [
        (each.uri.rpartition("/")[2], each.priority, each.pinned, each.reason)
        for each in message.items
    ]


def placed(name: str, *requests: Any, node: str = "n1", **more: Any) -> core.Pod:
    fields = {"phase": "Running", "annotations": notes(*requests), **more}
    return builders.make_pod(name, "g1", node=node, **fields)


NODE = builders.make_node("n1", cpu="4")


def test_a_node_should_have_the_data_of_the_pods_that_are_placed_there() -> None:
    of = Scheduling(NODE, placed("p1", request("x"), request("y")), placed("p2", request("x")))
    (message,) = of.step().values()
    found = items(message)
    assert sorted(found) == [
        ("x", 1000, True, "pod default/p1"),
        ("y", 1000, True, "pod default/p1"),
    ]


def test_nothing_is_published_again_while_nothing_changes() -> None:
    of = Scheduling(NODE, placed("p1", request("x")))
    assert list(of.step()) == ["n1"]
    of.read(*of.log.see(placed("p2", request("x"), version=2)))
    assert of.step() == {}


def test_data_of_a_pod_that_ended_is_not_wanted() -> None:
    of = Scheduling(NODE, placed("p1", request("x")))
    of.step()
    of.read(*of.log.see(placed("p1", request("x"), phase="Succeeded", version=2)))
    assert of.step() == {"n1": data.DataWanted(node="n1")}


def test_a_node_that_is_gone_should_have_nothing() -> None:
    of = Scheduling(NODE, placed("p1", request("x")))
    of.step()
    of.read(of.log.append(builders.tombstone_of(NODE)))
    of.read(of.log.append(builders.tombstone_of(placed("p1", request("x")))))
    assert of.step() == {"n1": None}


def test_a_new_leader_publishes_only_what_differs_from_the_topic() -> None:
    of = Scheduling(NODE, placed("p1", request("x")))
    (message,) = of.step().values()
    assert message is not None
    published = (message, data.DataWanted(node="gone"))
    after = Scheduling(NODE, placed("p1", request("x")), published=published)
    assert after.step() == {"gone": None}


def test_a_record_of_a_replaced_leader_is_replaced_again() -> None:
    of = Scheduling(NODE, placed("p1", request("x")))
    (message,) = of.step().values()
    of.read(fenced=(of.log.append(draft(topics.DATA_WANTED, "n1", data.DataWanted(node="n1"))),))
    assert of.step() == {"n1": message}


def test_a_pending_gang_with_required_data_starts_when_a_node_has_it() -> None:
    """Prefetched first; then the pod is placed, and the node keeps the data for it."""
    group = builders.make_pod_group("g1", phase="Inqueue")
    required = request("x", locality="Required")
    pod = builders.make_pod("p1", "g1", annotations=notes(required))
    of = Scheduling(NODE, group, pod)
    of.read(of.log.append(draft(topics.DATA, "n1", report("n1"))))
    assert items(of.step()["n1"]) == [("x", 532, True, "pending gang default/g1")]
    begun = data_objects.copy("x", "Fetching")
    of.read(of.log.append(draft(topics.DATA, "n1", report("n1", begun))))
    assert of.step() == {}
    done = data_objects.copy("x")
    of.read(of.log.append(draft(topics.DATA, "n1", report("n1", done))))
    assert items(of.step()["n1"]) == [("x", 1000, True, "pod default/p1")]


def test_a_report_that_cannot_be_read_is_unknown_and_not_the_previous_one() -> None:
    of = Scheduling(NODE)
    of.read(of.log.append(draft(topics.DATA, "n1", report("n1", data_objects.copy("x")))))
    copies = of.engine.cache.model.auxiliary.data_copies
    assert list(copies.of(data_objects.key("x"))) == ["n1"]
    of.read(of.log.garble(topics.DATA, "n1"))
    assert not copies.of(data_objects.key("x"))
    assert not copies.reports


def test_only_changes_that_matter_to_decisions_count() -> None:
    known = data_copies.DataCopies()
    fetching = data_objects.copy("x", "Fetching")
    assert known.put("n1", report("n1", fetching))
    progress = msgspec.structs.replace(fetching, fetched_bytes=5, last_used_at=builders.NOON)
    assert not known.put("n1", report("n1", progress, read_bytes_per_s={"s3": 5}))
    assert known.put("n1", report("n1", data_objects.copy("x")))
    assert known.put("n1", report("n1", data_objects.copy("x"), capacity_bytes=1))
    assert known.put("n1", None)


def test_the_size_of_a_data_set_is_that_of_most_complete_copies() -> None:
    known = data_copies.DataCopies()
    for node, size in (("a", 5), ("b", 7), ("c", 7)):
        known.put(node, report(node, data_objects.copy("x", bytes=size)))
    assert known.size(data_objects.key("x")) == 7
    for node in "bc":
        known.put(node, report(node, data_objects.copy("x", "Failed", bytes=9)))
    assert known.size(data_objects.key("x")) == 5
    known.put("a", report("a"))
    assert known.size(data_objects.key("x")) == 0

"""A recorded session, replayed from its record and the log up to its offsets, decides the same.

Generated scenarios are replayed in ``test_scheduler_state_machine.py``; here are sessions with
external inputs, and errors for sessions that cannot be replayed.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from services.scheduler.tests import test_deviceshare
from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.harness import draft
from services.scheduler.tests.support.service_driver import (
    SETTINGS,
    OtherServices,
    at_least,
    gang,
    serving,
)
from services.scheduler.tests.test_plugin_isolation import Odd
from stromboli.scheduler import configuration_file
from stromboli.scheduler.core import plugins, policy, schedule
from stromboli.scheduler.core.cache import cluster_cache
from stromboli.scheduler.core.cluster import cluster_objects
from stromboli.scheduler.core.config import configuration
from stromboli.scheduler.core.framework import external_calls, plugin_isolation, session_inputs
from stromboli.scheduler.core.framework import session as framework
from stromboli.scheduler.core.replay import session_replay, snapshot_history
from stromboli.shared import envelope, topics
from stromboli.shared.api import meta
from stromboli.shared.messages import log
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders, topic_log
from stromboli.testkit.doubles import http_server

NODES = [builders.make_node(name, cpu="4") for name in ("n1", "n2", "n3")]
METRICS = configuration.Metrics("http://prometheus")
TIERS: sessions.Tier = [
    *default_sessions.TIER,
    sessions.plugin("random-order"),
    sessions.plugin("usage"),
]


class Life:
    """A log, and sessions with one configuration whose decisions are appended to the log."""

    def __init__(self, how: configuration.Configuration, *objects: meta.Object) -> None:
        self.log = topic_log.TopicLog()
        self.how = how
        self.plugin_failures = plugin_isolation.FailureHistory()
        self.cache = cluster_cache.ClusterCache(policy.Policy().scheduler_names)
        self.registry = plugins.Registry()
        self.see(builders.make_queue(), *NODES, *objects)

    def see(self, *objects: meta.Object) -> None:
        for record in self.log.see(*objects):
            self.cache.apply(record)

    def decide(self, *, seed: int = 0, seconds: int = 0, **given: Any) -> schedule.SessionResult:
        decided = schedule.run_session(
            self.cache,
            builders.NOON + timedelta(seconds=seconds),
            policy.Policy(configured=self.how),
            seed,
            inputs=session_inputs.SessionInputs(**given),
            find=self.registry.find,
            plugin_failures=self.plugin_failures,
        )
        drafts: list[tuple[str, msgspec.Struct]] = [
            (each.pod_group, each) for each in decided.decisions
        ]
        if decided.record is not None:
            drafts.append((messages.SESSION_KEY, decided.record))
        for key, message in drafts:
            self.cache.apply(self.log.append(draft(topics.DECISIONS, key, message)))
        self.cache.finish_session(is_throttled=decided.is_throttled)
        return decided

    def again(
        self,
        records: Sequence[envelope.Record] | None = None,
        past: snapshot_history.SnapshotHistory = snapshot_history.EMPTY,
    ) -> list[session_replay.ReplayedSession]:
        found = self.log.records if records is None else records
        return list(
            session_replay.replay_sessions(
                found, [self.how], policy.Policy(), self.registry.find, past
            )
        )


def measured(at: int, **cpu: float) -> cluster_objects.MeasuredUsage:
    usage = {
        name: cluster_objects.NodeUsage(cpu={"10m": share}, memory={"10m": share})
        for name, share in cpu.items()
    }
    return cluster_objects.MeasuredUsage(builders.NOON + timedelta(seconds=at), usage)


def test_the_record_contains_measurements_and_the_seed() -> None:
    """Once: sessions after the first refer to them."""
    how = msgspec.structs.replace(sessions.configured(TIERS), metrics=METRICS)
    life = Life(how, *gang(2))
    first = life.decide(seed=7, measured=measured(0, n1=90.0, n2=10.0, n3=95.0))
    assert {bind.node for bind in first.decisions[0].binds} == {"n2"}
    life.see(*gang(1, "g2"))
    life.decide(seed=8, seconds=1, measured=measured(0, n1=90.0, n2=10.0, n3=95.0))
    life.see(*gang(1, "g3"))
    life.decide(seed=9, seconds=2, measured=measured(2, n1=20.0, n2=99.0, n3=95.0))
    again = life.again()
    assert [each.is_same for each in again] == [True, True, True]
    kept = [each.record.answers[session_inputs.MEASURED] for each in again]
    assert [b"nodes" in bytes(each) for each in kept] == [True, False, True]


def test_a_replay_uses_the_recorded_responses_of_extenders() -> None:
    requested: list[str] = []

    def ask(
        questions: Sequence[external_calls.ExternalRequest],
    ) -> list[external_calls.ExternalResponse]:
        requested.extend(question.url for question in questions)
        names = [msgspec.json.decode(question.body)["node"]["Name"] for question in questions]
        return [
            external_calls.ExternalResponse(
                '{"status": "%s", "code": 2}' % ("" if name == "n3" else "no")
            )
            for name in names
        ]

    extender = sessions.plugin(
        "extender",
        {"extender.urlPrefix": "http://e", "extender.predicateVerb": "predicate"},
    )
    life = Life(sessions.configured([*default_sessions.TIER, extender]), *gang(2))
    decided = life.decide(ask=ask)
    assert {bind.node for bind in decided.decisions[0].binds} == {"n3"}
    number = len(requested)
    assert [each.is_same for each in life.again()] == [True]
    assert len(requested) == number


def test_a_replay_leaves_out_the_plugins_that_had_failed() -> None:
    """Also if it would not fail any more, as one that was only slow."""
    is_broken = True

    def register(ssn: framework.Session) -> None:
        def score(task: Any, view: Any) -> Any:
            if is_broken:
                raise RuntimeError("odd")
            prefers = [name == "n3" for name in ssn.nodes.names]
            return (10**9 * ssn.nodes.labelled.usable * prefers)[view.rows]

        ssn.add_node_order(score)

    registry = plugins.Registry({"odd": lambda: Odd(register)})
    odd = configuration.PluginOptions("odd")
    how = sessions.configured(default_sessions.TIER)
    life = Life(msgspec.structs.replace(how, tiers=(*how.tiers, (odd,))), *gang(1))
    life.registry = registry
    decided = life.decide()
    assert decided.decisions[0].binds[0].node == "n1"
    is_broken = False
    assert [each.is_same for each in life.again()] == [True]


def test_a_replay_repeats_evictions_and_in_flight_limits() -> None:
    tier = [*default_sessions.TIER, sessions.plugin("conformance")]
    high = [
        builders.make_priority_class("urgent", 100),
        builders.make_pod_group("high", 1, priority_class="urgent"),
        builders.make_pod("high-0", "high", cpu="3"),
    ]
    low = [
        each
        for name in ("n1", "n2")
        for each in default_sessions.gang(name, 4, node=name, min_member=1)
    ]
    life = Life(sessions.configured(tier, run="allocate, preempt"), *low, *gang(4))
    life.decide()
    life.see(*high)
    life.decide(seconds=1)
    life.see(*gang(2, "g2"))
    life.decide(seconds=2)
    again = life.again()
    assert [each.is_same for each in again] == [True] * len(again)
    assert sum(len(statement.evictions) for each in again for statement in each.decided) > 0


def test_a_replay_of_another_log_reports_different_decisions() -> None:
    """As when compaction took a record that the session had folded."""
    life = Life(sessions.configured(default_sessions.TIER), *gang(3))
    life.decide()
    records = [each for each in life.log.records if each.key != "n1"]
    (again,) = life.again(records)
    assert not again.is_same
    assert again.missing == {topics.NODES.name: 1}
    assert {bind.node for each in again.decided for bind in each.binds} <= {"n2", "n3"}


def test_compaction_of_what_newer_messages_replaced_misses_nothing() -> None:
    """A reader of a compacted topic gets the newest record of each key, and not the first record of
    a writer, which says only that it opened the topic."""
    life = Life(sessions.configured(default_sessions.TIER), *gang(1))
    message = log.EpochAnnounced(writer="controller", instance="c")
    opened = life.log.append(draft(topics.BATCH_PLANS, "$epoch", message))
    life.cache.apply(opened)
    life.cache.advance({topics.BATCH_PLANS.name: opened.offset + 1})
    life.decide()
    (again,) = life.again([each for each in life.log.records if each is not opened])
    assert again.is_same
    assert again.missing == {}


def test_records_that_no_service_reads_are_not_missing() -> None:
    """Each start of a monitor announces an epoch on every topic of snapshots."""
    life = Life(sessions.configured(default_sessions.TIER), *gang(1))
    message = log.EpochAnnounced(writer="monitor", instance="m")
    announced = life.log.append(draft(topics.NODES, "$epoch", message))
    life.cache.advance({topics.NODES.name: announced.offset + 1})
    life.decide()
    read = [each for each in life.log.records if each is not announced]
    assert [each.missing for each in life.again(read)] == [{topics.NODES.name: 1}]
    unread = {topics.NODES.name: [announced.offset]}
    (again,) = life.again(read, snapshot_history.SnapshotHistory((), {}, unread=unread))
    assert (again.is_same, again.missing) == (True, {})


def test_before_the_first_whole_state_only_records_that_were_replaced_later_may_be_missing() -> (
    None
):
    """The first checkpoint of a new log is behind its first sessions, and nothing is compacted."""
    life = Life(sessions.configured(default_sessions.TIER), *gang(1))
    life.decide()
    whole_from = {topics.NODES.name: 100}
    (again,) = life.again(past=snapshot_history.SnapshotHistory((), whole_from))
    assert (again.is_same, again.missing) == (True, {})
    left = [each for each in life.log.records if each.key not in ("n1", "n2")]
    for end, missing in ((100, 2), (len(NODES) + 1, 1)):
        whole_from = {topics.NODES.name: end}
        (again,) = life.again(left, snapshot_history.SnapshotHistory((), whole_from))
        assert again.missing == {topics.NODES.name: missing}


def test_a_missing_configuration_is_named_by_its_digest() -> None:
    life = Life(sessions.configured(default_sessions.TIER), *gang(1))
    life.decide()
    (again,) = session_replay.replay_sessions(life.log.records, [], policy.Policy())
    assert life.how.digest in again.problem
    assert not again.is_same


def test_measurements_of_a_missing_record_are_reported() -> None:
    how = msgspec.structs.replace(sessions.configured(TIERS), metrics=METRICS)
    life = Life(how, *gang(1))
    life.decide(measured=measured(0, n1=1.0))
    first = len(life.log.records)
    life.see(*gang(1, "g2"))
    life.decide(measured=measured(0, n1=1.0))
    left = [
        each
        for at, each in enumerate(life.log.records)
        if at >= first or each.topic != topics.DECISIONS
    ]
    (again,) = life.again(left)
    assert "are in an earlier record" in again.problem


FILE = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: extender
    arguments:
      extender.urlPrefix: %s
      extender.predicateVerb: predicate
      extender.prioritizeVerb: prioritize
"""


async def test_a_log_of_the_service_with_an_http_extender_is_replayed_without_it(
    other_services: OtherServices, tmp_path: Path
) -> None:
    def answer(request: http_server.Request) -> http_server.Reply:
        if request.path == "/prioritize":
            return http_server.json({"nodeScore": {"n2": 50, "n3": 10}})
        refuses = request.json()["node"]["Name"] == "n1"
        return http_server.json({"status": "no" if refuses else "", "code": 2})

    with http_server.Server(answer) as server:
        path = tmp_path / "c.yaml"
        path.write_text(FILE % server.url)
        settings = msgspec.structs.replace(SETTINGS, configuration=str(path))
        await other_services.see(builders.make_queue(), *NODES, *gang(2))
        await other_services.sync()
        async with serving(other_services.bus, settings):
            decisions = await other_services.until(topics.DECISIONS, at_least(2))
    statement = envelope.decode(decisions[0])
    assert isinstance(statement, messages.StatementDecided)
    assert {bind.node for bind in statement.binds} == {"n2"}
    records = [*decisions]
    seen = {topics.QUEUES: 1, topics.NODES: 3, topics.POD_GROUPS: 1, topics.PODS: 2}
    for topic, number in seen.items():
        records += await other_services.until(topic, at_least(number))
    how = configuration_file.parse(FILE % server.url, "c.yaml", plugins.Registry()).configuration
    (again,) = session_replay.replay_sessions(records, [how], policy.Policy())
    assert again.is_same, again


def test_a_session_on_nodes_with_shared_gpus_is_replayed_alike() -> None:
    """Byte for byte, though a bind has several annotations, which the log sorts. The lock of a node
    is an annotation with a short key."""
    how = sessions.configured(test_deviceshare.tier(NodeLockEnable=True))
    node = test_deviceshare.vgpu_node("g1", "A,8000")
    annotations = {**(node.metadata.annotations or {}), "hamivgpu": builders.NOON.isoformat()}
    metadata = msgspec.structs.replace(node.metadata, annotations=annotations, resource_version="2")
    pods = default_sessions.gang("g", 1, containers=[test_deviceshare.wants(memory=1)])
    life = Life(how, msgspec.structs.replace(node, metadata=metadata), *pods)
    assert not life.decide().decisions
    unlocked = msgspec.structs.replace(node.metadata, resource_version="3")
    life.see(msgspec.structs.replace(node, metadata=unlocked))
    (statement,) = life.decide(seconds=1).decisions
    (bind,) = statement.binds
    assert bind.node == "g1"
    assert bind.annotations
    assert [each.is_same for each in life.again()] == [True]

"""Invalid objects in the running service: each one stops only what it concerns, and is reported.
Failing plugins are in ``test_plugins_at_work.py``, configurations in
``test_configuration_file.py``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.scheduler.tests.support import default_sessions, sessions
from services.scheduler.tests.support.service_driver import SETTINGS, OtherServices, serving
from stromboli.shared import envelope, topics
from stromboli.shared.api import core, meta, scheduling
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

QUEUE, NODE = builders.make_queue(), builders.make_node("n1", cpu="4")
FINE = default_sessions.gang("fine", 2)
TREE = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
- plugins:
  - name: predicates
  - name: capacity
    enableHierarchy: true
"""


async def run(
    other_services: OtherServices, *objects: meta.Object, settings: Any = SETTINGS
) -> tuple[dict[str, str], dict[str, messages.PodGroupExplained]]:
    """Pod -> node of the bound pods when the valid gang is bound, and the explanation of the gang
    ``bad``.
    """
    await other_services.see(*objects, *FINE)
    await other_services.sync()
    async with serving(other_services.bus, settings) as health:
        decisions = await other_services.until(
            topics.DECISIONS, lambda records: "fine-1" in places(records)
        )
        records = await other_services.until(
            topics.EXPLANATIONS, lambda found: "default/bad" in why(found)
        )
        assert health.is_ready
    return places(decisions), why(records)


def places(records: Sequence[envelope.Record]) -> dict[str, str]:
    decoded = [envelope.decode(record) for record in records]
    statements = [each for each in decoded if isinstance(each, messages.StatementDecided)]
    return {bind.pod: bind.node for statement in statements for bind in statement.binds}


def why(records: Sequence[envelope.Record]) -> dict[str, messages.PodGroupExplained]:
    decoded = [envelope.decode(record) for record in records]
    return {
        each.pod_group: each for each in decoded if isinstance(each, messages.PodGroupExplained)
    }


ODD = ("-1", "4 cores", "1Gb", "0x10", "", "NaN", "1e400")


@pytest.mark.parametrize("quantity", ODD)
async def test_a_gang_that_asks_for_an_odd_amount_waits_and_reports_for_which(
    other_services: OtherServices, quantity: str
) -> None:
    bound, explanations = await run(
        other_services, QUEUE, NODE, *default_sessions.gang("bad", 1, cpu=quantity)
    )
    assert bound == {"fine-0": "n1", "fine-1": "n1"}
    assert explanations["default/bad"].tier == "invalid"
    assert "cpu" in explanations["default/bad"].message


@pytest.mark.parametrize("quantity", ODD)
async def test_a_node_that_has_an_odd_amount_gets_nothing(
    other_services: OtherServices, quantity: str
) -> None:
    """Not even what would fit if it were read as large."""
    odd = builders.make_node("a", cpu=quantity)
    bound, explanations = await run(
        other_services, QUEUE, odd, NODE, *default_sessions.gang("bad", 5)
    )
    assert bound == {"fine-0": "n1", "fine-1": "n1"}
    assert explanations["default/bad"].tier in ("resources", "fragmentation")


async def test_a_node_that_reports_nothing_of_what_it_has_gets_nothing(
    other_services: OtherServices,
) -> None:
    silent = core.Node(metadata=builders.make_meta("node", "a"))
    bound, _ = await run(other_services, QUEUE, silent, NODE, *default_sessions.gang("bad", 5))
    assert set(bound.values()) == {"n1"}


async def test_a_resource_that_no_node_has_is_what_the_gang_is_short_of(
    other_services: OtherServices,
) -> None:
    """Whatever its name."""
    extra = {"example.com/what": "1"}
    _, explanations = await run(
        other_services, QUEUE, NODE, *default_sessions.gang("bad", 1, extra=extra)
    )
    (short,) = explanations["default/bad"].shortages
    assert (short.resource, short.free, short.total) == ("example.com/what", 0, 0)
    assert "Insufficient example.com/what" in explanations["default/bad"].message


@pytest.mark.parametrize("amounts", [{"cpu": "-3"}, {"cpu": "many"}], ids=["negative", "odd"])
async def test_a_pod_group_with_odd_minimum_resources_stays_outside_alone(
    other_services: OtherServices, amounts: dict[str, Any]
) -> None:
    bad = builders.make_pod_group("bad", 1, phase="Pending", min_resources=amounts)
    bound, explanations = await run(other_services, QUEUE, NODE, bad)
    assert len(bound) == 2
    assert explanations["default/bad"].message


@pytest.mark.parametrize("limit", ["capability", "deserved", "guarantee"])
@pytest.mark.parametrize("amount", ["-4", "lots"])
async def test_a_queue_with_an_odd_limit_takes_nothing_from_others(
    other_services: OtherServices, limit: str, amount: str
) -> None:
    """Others have their share as if it were not there."""
    limits: dict[str, Any] = {limit: {"cpu": amount}}
    queue = sessions.queue("odd", **limits)
    gang = sessions.gang("bad", "odd", 9, min_member=9)
    bound, explanations = await run(other_services, QUEUE, queue, NODE, *gang)
    assert len(bound) == 2
    assert explanations["default/bad"].queue == "odd"


@pytest.mark.parametrize("weight", [0, -1])
async def test_a_queue_without_weight_deserves_nothing_and_affects_no_other(
    other_services: OtherServices, weight: int
) -> None:
    queue = sessions.queue("odd", weight=weight)
    bound, explanations = await run(
        other_services, QUEUE, queue, NODE, *sessions.gang("bad", "odd", 1)
    )
    assert len(bound) == 2
    assert explanations["default/bad"].tier == "share"


@pytest.mark.parametrize(
    ("queues", "names"),
    [
        ([sessions.queue("a", parent="b"), sessions.queue("b", parent="a")], "a"),
        ([sessions.queue("a", parent="a")], "a"),
        ([sessions.queue("a", parent="nobody")], "nobody"),
    ],
    ids=["cycle", "itself", "missing"],
)
async def test_a_queue_without_a_root_stops_only_its_own_jobs_and_is_reported(
    other_services: OtherServices, tmp_path: Path, queues: list[scheduling.Queue], names: str
) -> None:
    """Jobs of other queues continue."""
    path = tmp_path / "c.yaml"
    path.write_text(TREE)
    settings = msgspec.structs.replace(SETTINGS, configuration=str(path))
    bad = builders.make_pod_group("bad", 1, queue="a", phase="Pending", min_resources={"cpu": "1"})
    root = sessions.queue("root")
    bound, explanations = await run(
        other_services, root, QUEUE, *queues, NODE, bad, settings=settings
    )
    assert len(bound) == 2
    assert explanations["default/bad"].tier == "enqueue"
    assert names in explanations["default/bad"].message


async def test_a_job_of_a_queue_that_does_not_exist_waits_for_it(
    other_services: OtherServices,
) -> None:
    bound, explanations = await run(
        other_services, QUEUE, NODE, *sessions.gang("bad", "nowhere", 1)
    )
    assert len(bound) == 2
    assert explanations["default/bad"].message == (
        "queue nowhere does not exist: create it, or submit to another queue"
    )


@pytest.mark.parametrize("amount", ["many", "-1"])
async def test_a_job_of_an_unreadable_queue_is_pending_with_the_reason(
    other_services: OtherServices, amount: str
) -> None:
    """Nothing is placed with amounts that are unknown or invalid."""
    wrong = sessions.queue("wrong", capability={"cpu": amount})
    bound, explanations = await run(
        other_services, QUEUE, wrong, NODE, *sessions.gang("bad", "wrong", 1)
    )
    assert len(bound) == 2
    assert "Origin reason is: its queue cannot be read: " in explanations["default/bad"].message
    assert amount in explanations["default/bad"].message


async def test_a_pod_of_no_group_is_not_changed(other_services: OtherServices) -> None:
    """Also a pod whose PodGroup does not exist; running ones use resources."""
    alone = builders.make_pod("alone", cpu="1")
    orphan = builders.make_pod("orphan", "gone", cpu="1")
    takes = builders.make_pod("takes", cpu="1", node="n1", phase="Running")
    bound, explanations = await run(
        other_services, QUEUE, NODE, alone, orphan, takes, *default_sessions.gang("bad", 4, cpu="1")
    )
    assert sorted(bound) == ["fine-0", "fine-1"]
    assert explanations["default/bad"].shortages[0].free == 1000


async def test_of_two_nodes_with_one_name_the_later_counts(other_services: OtherServices) -> None:
    """A name is a key: the second node, with another uid, replaces the first, and pods of the first
    still count.
    """
    small = builders.make_node("n1", cpu="3", generation=2, version=2)
    lies = builders.make_pod("lies", cpu="1", node="n1", phase="Running")
    bound, explanations = await run(
        other_services,
        QUEUE,
        builders.make_node("n1", cpu="64"),
        small,
        lies,
        *default_sessions.gang("bad", 3),
    )
    assert bound == {"fine-0": "n1", "fine-1": "n1"}
    assert explanations["default/bad"].shortages[0].total == 3000


@pytest.mark.parametrize("minimum", [0, -3])
async def test_a_gang_with_an_invalid_minimum_affects_no_other(
    other_services: OtherServices, minimum: int
) -> None:
    await other_services.see(
        QUEUE, NODE, *default_sessions.gang("bad", 1, min_member=minimum), *FINE
    )
    await other_services.sync()
    async with serving(other_services.bus):
        decisions = await other_services.until(
            topics.DECISIONS, lambda found: len(places(found)) == 3
        )
    assert set(places(decisions)) == {"bad-0", "fine-0", "fine-1"}

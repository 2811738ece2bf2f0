"""The service on the embedded log: what it publishes, when it is ready, and how it restarts."""

from pathlib import Path
from typing import Any

import msgspec

from services.scheduler.tests.support.service_driver import (
    NODE,
    SETTINGS,
    TRACE,
    OtherServices,
    at_least,
    bound,
    gang,
    has_problem,
    is_ready,
    serving,
)
from stromboli.scheduler import configuration_file, restart, service
from stromboli.scheduler.core import plugins
from stromboli.scheduler.core.config import configuration as framework
from stromboli.scheduler.settings import SchedulerSettings
from stromboli.shared import envelope, errors, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import log
from stromboli.shared.messages import scheduling as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, records
from stromboli.testkit.doubles import interruptible_bus, takeover_bus


async def test_a_gang_is_decided_in_one_statement_and_the_session_recorded(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(3))
    await other_services.sync()
    async with serving(other_services.bus):
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
    assert [record.key for record in decisions] == ["default/g1", messages.SESSION_KEY]
    assert bound(decisions) == ["g1-w-0", "g1-w-1", "g1-w-2"]


async def test_a_decision_names_its_cause_and_continues_the_gangs_trace(
    other_services: OtherServices,
) -> None:
    """The first session is caused by the start, later ones by a record."""
    await other_services.see(builders.make_queue(), NODE, *gang(1, "g0"))
    await other_services.sync()
    async with serving(other_services.bus):
        await other_services.until(topics.DECISIONS, at_least(2))
        await other_services.see(*gang(1))
        decisions = await other_services.until(topics.DECISIONS, at_least(3))
    assert decisions[2].traceparent.split("-")[1] == TRACE.split("-")[1]
    assert decisions[2].cause.startswith("monitor/")


async def test_the_service_is_not_ready_before_every_kind_is_synced(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(1))
    async with serving(other_services.bus) as health:
        await has_problem(health, "sync")
        await other_services.sync()
        await is_ready(health)
        assert bound(await other_services.until(topics.DECISIONS, at_least(1))) == ["g1-w-0"]


async def test_a_waiting_gang_is_explained_until_it_starts(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(5))
    await other_services.sync()
    async with serving(other_services.bus):
        seen = await other_services.until(topics.EXPLANATIONS, at_least(2))
        assert sorted(record.key for record in seen) == ["default/g1", "queue//default//0"]
        await other_services.see(builders.make_node("n2", cpu="4"))
        seen = await other_services.until(topics.EXPLANATIONS, at_least(4))
    assert [record.value is None for record in seen if record.key == "default/g1"] == [False, True]


async def test_a_restart_repeats_no_decision_and_knows_what_is_in_flight(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(3))
    await other_services.sync()
    async with serving(other_services.bus):
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
        await other_services.execute(decisions[0])
    async with serving(other_services.bus) as health:
        await is_ready(health)
        await other_services.see(*gang(1, "g2"), *gang(2, "g3"))
        decisions = await other_services.until(
            topics.DECISIONS, lambda found: len(bound(found)) > 3
        )
    assert bound(decisions) == ["g1-w-0", "g1-w-1", "g1-w-2", "g2-w-0"]


async def test_an_undecodable_record_goes_to_the_dead_letters_and_stops_no_other_gang(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, builders.make_node("n2"))
    await other_services.append_undecodable(topics.NODES, "n1")
    await other_services.see(*gang(1))
    await other_services.sync()
    async with serving(other_services.bus):
        parked = await other_services.until(topics.DEAD_LETTERS, at_least(1))
        decisions = await other_services.until(topics.DECISIONS, at_least(1))
    message, statement = envelope.decode(parked[0]), envelope.decode(decisions[0])
    assert isinstance(message, log.DeadLetter)
    assert (message.topic, message.key, message.reported_by) == ("cluster.nodes", "n1", "scheduler")
    assert isinstance(statement, messages.StatementDecided)
    assert [bind.node for bind in statement.binds] == ["n2"]


async def test_a_replaced_scheduler_without_a_lease_decides_nothing(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE)
    await other_services.sync()
    async with serving(other_services.bus) as health:
        await is_ready(health)
        await other_services.bus.open_writer("scheduler", "successor")
        await has_problem(health, "lease")
    assert "successor has led since" in health.notes["role"]


async def test_no_more_is_in_flight_than_the_limit_until_outcomes_arrive(
    other_services: OtherServices,
) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(2, "g1"), *gang(2, "g2"))
    await other_services.sync()
    async with serving(
        other_services.bus, SchedulerSettings(instance="test", max_in_flight_tasks=2)
    ) as health:
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
        await is_ready(health)
        assert bound(decisions) == ["g1-w-0", "g1-w-1"]
        await other_services.execute(decisions[0])
        decisions = await other_services.until(topics.DECISIONS, at_least(4))
    assert bound(decisions) == ["g1-w-0", "g1-w-1", "g2-w-0", "g2-w-1"]


class LossyWriter:
    """A writer whose first appends reach the log without an acknowledgement."""

    def __init__(self, writer: port.Writer, lost: int) -> None:
        self._writer = writer
        self._lost = lost

    @property
    def epoch(self) -> int:
        return self._writer.epoch

    @property
    def opened_at(self) -> int:
        return self._writer.opened_at

    async def append(self, *drafts: envelope.Draft) -> tuple[port.Appended, ...]:
        appended = await self._writer.append(*drafts)
        if self._lost and drafts[0].topic == topics.DECISIONS:
            self._lost -= 1
            raise errors.TransientError("append", "no acknowledgement")
        return appended


class LossyBus:
    """A log that does not acknowledge all appends."""

    def __init__(self, bus: port.Bus, lost: int) -> None:
        self._bus = bus
        self._lost = lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def open_writer(self, name: topics.Service, instance: str) -> LossyWriter:
        return LossyWriter(await self._bus.open_writer(name, instance), self._lost)


async def test_a_repeated_statement_counts_once(other_services: OtherServices) -> None:
    await other_services.see(builders.make_queue(), NODE, *gang(2))
    await other_services.sync()
    lossy: Any = LossyBus(other_services.bus, lost=1)
    async with serving(lossy):
        await other_services.until(topics.DECISIONS, at_least(4))
        await other_services.see(*gang(2, "g2"), *gang(1, "g3"))
        decisions = await other_services.until(topics.DECISIONS, at_least(6))
    assert bound(decisions) == ["g1-w-0", "g1-w-1"] * 2 + ["g2-w-0", "g2-w-1"]


async def test_room_that_the_previous_leader_assigned_is_not_assigned_again(
    other_services: OtherServices,
) -> None:
    """The previous leader knew a pod that the new one has not read yet."""
    before = await other_services.bus.open_writer("scheduler", "before")
    group, pod = builders.make_pod_group("g1"), builders.make_pod("g1-w-0", "g1", cpu="4")
    bind = messages.Bind(namespace="default", pod="g1-w-0", uid=pod.metadata.uid, node="n1")
    decided = messages.StatementDecided(
        session=1, pod_group="default/g1", pod_group_uid=group.metadata.uid, binds=(bind,)
    )
    draft = envelope.Draft(
        topic=topics.DECISIONS, key="default/g1", message=decided, time=builders.NOON
    )

    async def last_words() -> None:
        await other_services.see(pod)
        await before.append(draft)

    await other_services.see(builders.make_queue(), NODE, group, *gang(1, "g2"))
    await other_services.sync()
    late: Any = takeover_bus.TakeoverBus(
        other_services.bus, "scheduler", pod.metadata.key, last_words
    )
    async with serving(late):
        await late.has_opened.wait()
        await other_services.append_undecodable(topics.NODES, "n2")
        await other_services.until(topics.DEAD_LETTERS, at_least(1))  # a step was taken
        late.is_late = False
        await other_services.sync()
        seen = await other_services.until(topics.EXPLANATIONS, at_least(1))
        decisions = await other_services.until(topics.DECISIONS, at_least(1))
    assert "default/g2" in {record.key for record in seen}
    assert bound(decisions) == ["g1-w-0"]


async def test_no_session_runs_until_the_configuration_is_usable(
    other_services: OtherServices, tmp_path: Path
) -> None:
    """Readiness names file, line and key; the service continues once the file is usable."""
    file = tmp_path / "c.yaml"
    file.write_text("actions: alocate\n")
    settings = msgspec.structs.replace(
        SETTINGS, configuration=str(file), configuration_check_s=0.01
    )
    await other_services.see(builders.make_queue(), NODE, *gang(1))
    await other_services.sync()
    async with serving(other_services.bus, settings) as health:
        await has_problem(health, "configuration")
        assert f"{file}:1: actions: 'alocate'" in health.problems["configuration"]
        file.write_text("actions: allocate\n")
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
    assert bound(decisions) == ["g1-w-0"]


async def test_a_file_that_becomes_unusable_leaves_the_old_configuration_in_force(
    tmp_path: Path,
) -> None:
    """Readiness has a warning. The next usable file is applied immediately."""
    registry = plugins.Registry()
    path = tmp_path / "c.yaml"
    path.write_text("actions: allocate\n")
    file, health, decider = (
        configuration_file.ConfigurationFile(path, registry),
        runtime.Health("scheduler"),
        Decider(),
    )
    for content in ("actions: allocate\n", "actions: [\n", "actions: enqueue\n"):
        path.write_text(content)
        await service.reload_configuration(file, decider, health)
        is_broken = content.endswith("[\n")
        assert (f"{path}:2: not YAML" in health.warnings.get("configuration", "")) is is_broken
    assert [each.actions for each in decider.configured] == [("allocate",), ("enqueue",)]


class Decider:
    """Notes the configurations it is given."""

    def __init__(self) -> None:
        self.configured: list[framework.Configuration] = []

    async def reconfigure(self, loaded: configuration_file.LoadedConfiguration) -> None:
        self.configured.append(loaded.configuration)


# --- replaced writers ----------------------------------------------------------------------------


async def test_records_of_a_replaced_monitor_are_dropped_after_a_log_outage(
    other_services: OtherServices,
) -> None:
    """It writes while the scheduler cannot read the log, about a node that is deleted."""
    bus, replaced = (
        interruptible_bus.InterruptibleBus(other_services.bus),
        await other_services.replace_monitor(),
    )
    await other_services.see(builders.make_queue(), builders.make_node("full", cpu="0"), *gang(1))
    await other_services.sync()
    async with serving(bus) as health:
        await is_ready(health)
        async with bus.cut(folds=1):
            await replaced.append(builders.snapshot_of(builders.make_node("a", cpu="4")))
        await other_services.see(builders.make_node("b", cpu="4"))
        decisions = await other_services.until(topics.DECISIONS, lambda found: bool(bound(found)))
    decoded = [envelope.decode(record) for record in decisions]
    statements = [each for each in decoded if isinstance(each, messages.StatementDecided)]
    assert [bind.node for each in statements for bind in each.binds] == ["b"]


async def test_a_decision_that_was_not_appended_before_a_stop_is_created_after_the_restart(
    other_services: OtherServices,
) -> None:
    bus = interruptible_bus.InterruptibleBus(other_services.bus)
    await other_services.see(builders.make_queue(), NODE)
    await other_services.sync()
    async with serving(bus) as health:
        await is_ready(health)
        bus.writes_cut.set()
        await other_services.see(*gang(2))
        await has_problem(health, "log")
    async with serving(other_services.bus):
        decisions = await other_services.until(topics.DECISIONS, at_least(2))
    assert bound(decisions) == ["g1-w-0", "g1-w-1"]


async def test_a_scheduler_that_cannot_open_the_log_reports_why_and_can_be_stopped(
    other_services: OtherServices,
) -> None:
    bus = interruptible_bus.InterruptibleBus(other_services.bus)
    bus.writes_cut.set()
    async with serving(bus) as health:
        await has_problem(health, "log")
        assert health.problems["log"] == "write the log: cut off"


async def test_a_restart_drops_records_of_replaced_writers(other_services: OtherServices) -> None:
    """The record of the last session has the epochs before the restart offsets."""
    bus, names = other_services.bus, (topics.DECISIONS.name, topics.OUTCOMES.name)
    paused = await bus.open_writer("scheduler", "paused")
    await other_services.see(builders.make_queue(), NODE, *gang(1))
    await other_services.sync()
    async with serving(bus):
        found = await other_services.until(topics.DECISIONS, at_least(2))
    session = envelope.decode(found[1])
    assert isinstance(session, messages.SessionRecorded)
    assert session.unconfirmed_from == found[0].offset
    assert session.epochs_seen == {
        names[0]: found[0].epoch,
        names[1]: other_services.controller.epoch,
    }
    statement = messages.StatementDecided(pod_group="default/g9", pod_group_uid="g9", session=9)
    draft = envelope.Draft(
        topic=topics.DECISIONS, key="default/g9", message=statement, time=builders.NOON
    )
    (zombie,) = await paused.append(draft)
    begins = msgspec.structs.replace(session, unconfirmed_from=zombie.offset)
    successor = await bus.open_writer("scheduler", "successor")
    await successor.append(
        envelope.Draft(
            topic=topics.DECISIONS, key=messages.SESSION_KEY, message=begins, time=builders.NOON
        )
    )
    place = await restart.start_position(bus)
    assert place.positions[topics.DECISIONS.name] == zombie.offset
    read, _ = await records.read(bus, topics.DECISIONS, start=place)
    assert records.keys(read) == [messages.SESSION_KEY]

"""The history of the snapshot topics: whole, in order, and whole again from every image on."""

from datetime import datetime, timedelta

import msgspec

from services.monitor.tests import shell
from stromboli.monitor import history as kept
from stromboli.scheduler.core.replay import snapshot_history
from stromboli.shared import envelope, topics
from stromboli.shared.api import kinds
from stromboli.shared.bus import port as bus_port
from stromboli.shared.cluster import port as cluster_port
from stromboli.shared.messages import base, plans
from stromboli.shared.messages import cluster as messages
from stromboli.shared.runtime import runtime
from stromboli.testkit import builders, objects

JOBS = topics.JOBS.name


def plain(record: envelope.Record) -> tuple[object, ...]:
    """What readers of a snapshot topic see."""
    of_object = record.headers.get("ce_objectuid", ""), record.headers.get("ce_objectversion", "")
    return record.offset, record.key, record.type, record.value, record.id, *of_object


async def past(bus: bus_port.Bus, jobs: int) -> snapshot_history.SnapshotHistory:
    """The history, when it has this many records of jobs."""

    def is_there(records: list[envelope.Record]) -> bool:
        positions = [
            message.positions
            for record in records
            if record.key == kept.KEPT
            and isinstance(message := envelope.decode(record), messages.HistoryCheckpointed)
        ]
        return any(each.get(JOBS, 0) >= jobs for each in positions[-1:])

    return snapshot_history.read_history(await shell.until(bus, topics.CHANGES, is_there))


async def test_the_history_has_every_record_unchanged(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    """Over a restart, each once: including records that compaction removed from the topics."""
    async with shell.monitoring(bus, cluster):
        await cluster.create(kinds.JOBS, "default", objects.job("j1"))
        await past(bus, 2)
    async with shell.monitoring(bus, cluster):
        patch = objects.merge(spec={"minAvailable": 2})
        await cluster.patch(kinds.JOBS, "default", "j1", patch, patch_type="merge")
        await cluster.delete(kinds.JOBS, "default", "j1")
        found = await past(bus, 5)
    stood = [plain(each) for each in await shell.said(bus, topics.JOBS)]
    assert [plain(each) for each in found.records if each.topic == topics.JOBS] == stood
    assert len(stood) == 3
    images = [
        message.image_offset
        for record in await shell.said(bus, topics.CHANGES)
        if isinstance(message := envelope.decode(record), messages.HistoryCheckpointed)
    ]
    assert set(images) == {1}, "behind what announces the writer"


async def test_the_history_says_which_records_no_service_reads(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    """Each monitor announces its epoch on every topic: these offsets are in no copy."""
    async with shell.monitoring(bus, cluster):
        await cluster.create(kinds.JOBS, "default", objects.job("j1"))
        await past(bus, 2)
    async with shell.monitoring(bus, cluster):
        await cluster.create(kinds.JOBS, "default", objects.job("j2"))
        found = await past(bus, 4)
    assert [each.offset for each in found.records if each.topic == topics.JOBS] == [1, 3]
    assert found.unread[JOBS] == [0, 2]


async def test_the_history_has_plans_that_were_withdrawn(bus: bus_port.Bus) -> None:
    """The session that bound planned pods needs the plan, which the controller then withdraws."""
    controller = await bus.open_writer("controller", "test")
    monitor = await bus.open_writer("monitor", "test")
    plan = plans.PodsPlanned(
        pod_group="default/g", job="default/j", job_uid="u", version=1, digest="d", tasks=()
    )
    for message in (plan, None):
        await controller.append(
            envelope.Draft(
                topic=topics.BATCH_PLANS, key="default/g", message=message, time=builders.NOON
            )
        )
    await monitor.append(builders.snapshot_of(builders.make_job("j1")))
    ends = {topic.name: 9999 for topic in topics.MATERIALIZED}
    health = runtime.Health("monitor")
    keeping = kept.History(bus, monitor, health, lambda: builders.NOON, ends)
    async with shell.going_on(keeping.keep()):
        found = await past(bus, 2)
    copied = [each for each in found.records if each.topic == topics.BATCH_PLANS]
    assert [envelope.decode(each) for each in copied] == [plan, None]


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = builders.NOON

    def __call__(self) -> datetime:
        return self.now


async def test_a_daily_image_makes_earlier_records_dispensable(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    async with shell.monitoring(bus, cluster):
        for name in ("j1", "j2"):
            await cluster.create(kinds.JOBS, "default", objects.job(name))
        await past(bus, 3)
    writer = await bus.open_writer("monitor", "next")
    clock = Clock()
    clock.now += kept.IMAGE_EVERY + timedelta(seconds=1)
    ends = {topic.name: 99 for topic in kept.WANTED}
    keeping = kept.History(bus, writer, runtime.Health("monitor"), clock, ends)
    async with shell.going_on(keeping.keep()):
        changes = await shell.until(
            bus,
            topics.CHANGES,
            lambda records: getattr(envelope.decode(records[-1]), "image_offset", 0) > 1,
        )
    mark = envelope.decode(changes[-1])
    assert isinstance(mark, messages.HistoryCheckpointed)
    assert mark.imaged_at == clock.now
    late = snapshot_history.read_history(
        each for each in changes if each.offset >= mark.image_offset
    )
    whole = snapshot_history.read_history(changes)
    assert [plain(each) for each in late.records] == [plain(each) for each in whole.records]
    assert late.complete_from == mark.positions
    cut = snapshot_history.read_history(each for each in changes if each.offset > mark.image_offset)
    assert cut.records == (), "half an image is none"


async def test_lost_records_of_the_topics_trigger_a_new_image(
    bus: bus_port.Bus, cluster: cluster_port.Cluster
) -> None:
    """Otherwise the history would contain records that no reader of the topics can have."""
    async with shell.monitoring(bus, cluster):
        await cluster.create(kinds.JOBS, "default", objects.job("j1"))
        await past(bus, 2)
    before = await shell.said(bus, topics.CHANGES)
    writer = await bus.open_writer("monitor", "next")
    clock = Clock()
    keeping = kept.History(bus, writer, runtime.Health("monitor"), clock, {JOBS: 0})
    async with shell.going_on(keeping.keep()):
        changes = await shell.until(bus, topics.CHANGES, shell.count(len(before) + 2))
    assert changes[len(before)].headers["ce_position"] == "1"


class Counting:
    """A writer that counts its calls."""

    def __init__(self, writer: bus_port.Writer) -> None:
        self._writer = writer
        self.epoch = writer.epoch
        self.opened_at = writer.opened_at
        self.appends = 0

    async def append(self, *drafts: envelope.Draft) -> tuple[bus_port.Appended, ...]:
        self.appends += 1
        return await self._writer.append(*drafts)


async def test_a_batch_and_its_offsets_are_one_append(bus: bus_port.Bus) -> None:
    """However large it is: every append is a round trip for the log and all who read it."""
    writer = await bus.open_writer("monitor", "test")
    ends = {topic.name: 9999 for topic in kept.WANTED}

    async def keep(numbers: range) -> int:
        """The appends for these jobs."""
        node_reports = [builders.snapshot_of(builders.make_job(f"j{number}")) for number in numbers]
        await writer.append(*node_reports)
        counting = Counting(writer)
        health = runtime.Health("monitor")
        keeping = kept.History(bus, counting, health, lambda: builders.NOON, ends)
        async with shell.going_on(keeping.keep()):
            await past(bus, numbers.stop)
        return counting.appends

    assert await keep(range(1)) == 2, "where an image begins is not known before it stands there"
    assert await keep(range(1, 1001)) == 1


async def test_a_record_that_cannot_be_decoded_is_copied_as_it_is(bus: bus_port.Bus) -> None:
    """A replay reads what the services have read."""
    writer = await bus.open_writer("monitor", "test")
    good = builders.snapshot_of(builders.make_job("j1"))
    assert good.message is not None
    broken = envelope.Encoded(base.type_name(good.message), b'{"metadata": 5}')
    await writer.append(msgspec.structs.replace(good, message=None, encoded=broken))
    ends = {topic.name: 9999 for topic in kept.WANTED}
    health = runtime.Health("monitor")
    keeping = kept.History(bus, writer, health, lambda: builders.NOON, ends)
    async with shell.going_on(keeping.keep()):
        found = await past(bus, 1)
    (copied,) = (each for each in found.records if each.topic == topics.JOBS)
    (stood,) = await shell.said(bus, topics.JOBS)
    assert plain(copied) == plain(stood)
    assert copied.value == broken.value

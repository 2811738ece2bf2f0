"""How a ``Bus`` handles records of external writers. An adapter's tests subclass
``ExternalWritersContract`` together with ``bus.BusContract``, whose log it uses.
"""

import abc
import asyncio
import contextlib
from datetime import UTC, datetime

import msgspec
import pytest

from stromboli.shared import envelope, topics
from stromboli.shared.bus import fencing, port
from stromboli.shared.messages import log
from stromboli.shared.messages.admission import ObjectsSubmitted
from stromboli.testkit import builders, log_reading, records

NODES = [builders.snapshot_of(builders.make_node(f"n{number}")) for number in range(5)]


class ExternalWritersContract(abc.ABC):
    """Tests of the rules about ``admission.submissions``."""

    @abc.abstractmethod
    async def put(
        self,
        open_bus: port.Bus,
        key: str,
        headers: dict[str, str],
        value: bytes | None,
        topic: topics.Topic = topics.SUBMISSIONS,
    ) -> None:
        """Append these bytes to a topic of the cluster ``a``, as an external client does."""

    async def test_external_records_are_read_unchanged(self, open_bus: port.Bus) -> None:
        """This holds for any headers: ids that look like internal ones neither replace nor fence a
        record.
        """
        claims = ("admission/9/1", "admission/3/1", "", "anything")
        for number, claim in enumerate(claims):
            headers = {"ce_id": claim, "ce_type": log.OPENED, "authorization": "Bearer t"}
            await self.put(open_bus, f"k{number}", headers, b"{")
        await self.put(open_bus, "", {}, None)
        async with open_bus.consume(topics.SUBMISSIONS, "g") as consumer:
            found = [await anext(aiter(consumer)) for _ in range(len(claims) + 1)]
        assert [each.id for each in found] == [*claims, ""]
        assert [each.value for each in found] == [b"{"] * len(claims) + [None]
        assert found[0].headers["authorization"] == "Bearer t"

    async def put_foreign(self, open_bus: port.Bus, draft: envelope.Draft, epoch: int) -> None:
        """Append a draft as a service of the cluster ``b`` that uses the topics of ``a``."""
        writer = draft.topic.writer or "test"
        headers, value = envelope.seal(draft, writer, epoch, 1, cluster_name="b")
        await self.put(open_bus, draft.key, headers, value, draft.topic)

    async def test_records_of_another_cluster_are_dropped(self, open_bus: port.Bus) -> None:
        """This holds for any epoch. Only the topic's writer reads them, and republishes the keys
        that they hide."""
        writer = await open_bus.open_writer("monitor", "m")
        await writer.append(NODES[0])
        for number, epoch in enumerate((0, writer.epoch, writer.epoch + 100), 1):
            await self.put_foreign(open_bus, NODES[number], epoch)
        await writer.append(NODES[4])
        fenced: list[envelope.Record] = []
        accepted: list[envelope.Record] = []
        batches = open_bus.materialize([topics.NODES])
        async with asyncio.timeout(records.DEADLINE_S), contextlib.aclosing(batches):
            async for batch in batches:
                accepted += batch.records
                fenced += batch.fenced
                if batch.caught_up:
                    break
        assert records.keys(accepted) == [NODES[0].key, NODES[4].key]
        assert records.keys(fenced) == [draft.key for draft in NODES[1:4]]

    async def test_a_writer_of_another_cluster_fences_no_writer(self, open_bus: port.Bus) -> None:
        """Its ``opened`` record does not raise the epoch for readers, consumers and later
        writers."""
        writer = await open_bus.open_writer("controller", "c1")
        opened = fencing.opening_draft("controller", "foreign", 10**6, datetime.now(UTC))
        await self.put_foreign(open_bus, opened, 10**6)
        await writer.append(records.outcome_of("ours"))
        successor = await open_bus.open_writer("controller", "c2")
        await successor.append(records.outcome_of("next"))
        await self.put_foreign(open_bus, records.outcome_of("foreign"), 10**6)
        assert writer.epoch < successor.epoch < 10**6
        read, _ = await records.read(open_bus, topics.OUTCOMES)
        assert records.keys(read) == ["ours", "next"]
        async with open_bus.consume(topics.OUTCOMES, "g") as consumer:
            assert records.keys(await log_reading.take(consumer, 4)) == ["ours", "next"]
        last = await open_bus.last_record(topics.OUTCOMES)
        assert last is not None
        assert last.key == "next"

    async def test_no_service_appends_submissions(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("admission", "i")
        message = ObjectsSubmitted(objects=(msgspec.Raw(b"{}"),))
        draft = envelope.Draft(
            topic=topics.SUBMISSIONS, key="k", message=message, time=datetime.now(UTC)
        )
        with pytest.raises(ValueError, match="outside"):
            await writer.append(draft)

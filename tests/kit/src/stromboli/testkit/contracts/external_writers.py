"""What every ``Bus`` does with records of others. An adapter's tests subclass ``OutsideContract``
beside ``bus.BusContract``, whose log it takes."""

import abc
from datetime import UTC, datetime

import msgspec
import pytest

from stromboli.shared import envelope, topics
from stromboli.shared.bus import port
from stromboli.shared.messages import log
from stromboli.shared.messages.admission import ObjectsSubmitted


class OutsideContract(abc.ABC):
    """The promises about ``admission.submissions``."""

    @abc.abstractmethod
    async def put(
        self, open_bus: port.Bus, key: str, headers: dict[str, str], value: bytes | None
    ) -> None:
        """Append to ``admission.submissions`` as somebody outside does."""

    async def test_what_others_hand_in_reads_as_it_stands(self, open_bus: port.Bus) -> None:
        """Whatever its headers claim: ids that look like ours replace and hide nobody."""
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

    async def test_no_service_of_ours_hands_in(self, open_bus: port.Bus) -> None:
        writer = await open_bus.open_writer("admission", "i")
        message = ObjectsSubmitted(objects=(msgspec.Raw(b"{}"),))
        draft = envelope.Draft(
            topic=topics.SUBMISSIONS, key="k", message=message, time=datetime.now(UTC)
        )
        with pytest.raises(ValueError, match="outside"):
            await writer.append(draft)

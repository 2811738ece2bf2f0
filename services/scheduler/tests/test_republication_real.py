"""Decisions with a lost outcome, with the scheduler's service on a real broker."""

from datetime import datetime, timedelta

import pytest

from services.scheduler.tests.support import harness, service_driver
from services.scheduler.tests.support.service_driver import OtherServices
from stromboli.shared import envelope, topics
from stromboli.shared.messages import scheduling as messages
from stromboli.testkit import builders

pytestmark = [pytest.mark.real]


class Clock:
    """Advances by ``step`` with each reading, so that republications are due within seconds."""

    def __init__(self) -> None:
        self.now = builders.NOON
        self.step = timedelta(seconds=2)

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now


async def placements(services: OtherServices, number: int) -> list[envelope.Record]:
    """The statements with binds, when there are this many."""

    def of(records: list[envelope.Record]) -> list[envelope.Record]:
        return [it for it in records if service_driver.bound([it])]

    found = await services.until(topics.DECISIONS, lambda records: len(of(records)) >= number)
    return of(found)


def statement(record: envelope.Record) -> messages.StatementDecided:
    message = envelope.decode(record)
    assert isinstance(message, messages.StatementDecided)
    return message


async def test_a_decision_without_an_outcome_is_republished_and_its_room_comes_back(
    kafka_services: OtherServices,
) -> None:
    """Also by a scheduler that was started in between: it reads the decision from the log. The
    outcome of the first publication that arrives late changes nothing."""
    clock, services = Clock(), kafka_services
    await services.see(builders.make_queue(), service_driver.NODE, *service_driver.gang(2))
    await services.sync()
    async with service_driver.serving(services.bus, clock=clock):
        first, second, *_ = await placements(services, 2)
        assert statement(second).decision == first.id
        assert statement(second).binds == statement(first).binds
    republished = len(await placements(services, 2))
    async with service_driver.serving(services.bus, clock=clock):
        *_, third = await placements(services, republished + 1)
        clock.step = timedelta()
        assert statement(third).decision == first.id
        pods = [bind.pod for bind in statement(first).binds]
        await services.controller.append(harness.answer(first, "executed"))
        await services.controller.append(harness.answer(third, "refused", *pods))
        *_, fourth = await placements(services, republished + 2)
        assert statement(fourth).decision == ""
        assert [bind.pod for bind in statement(fourth).binds] == pods

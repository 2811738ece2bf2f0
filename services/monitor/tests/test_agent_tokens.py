"""Agents' tokens: a flood of invalid ones delays no agent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.monitor.tests import active_terms
from services.monitor.tests.agent_accounts import AGENT, Accounts, user
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.monitor import agent_receiver
from stromboli.monitor.agent_receiver import ReportRejectedError
from stromboli.monitor.settings import MonitorSettings
from stromboli.testkit import builders

HOST, OTHER = "192.0.2.1", "192.0.2.2"


class Receiver:
    """A receiver of the leader, with agents' tokens for the node n1 and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.accounts = Accounts()
        of_node = {agent_receiver.NODE_NAME: ("n1",)}
        self.accounts.users = {name: user(AGENT, of_node) for name in ("first", "second")}
        self.receiver = agent_receiver.AgentReceiver(
            MonitorSettings(agents_account="kube-system/agents"),
            self.accounts,
            EmbeddedCluster(folder / "cluster.db"),
            lambda: builders.NOON,
            lambda: self.now_s,
        )

    async def status(self, token: str, peer: str = HOST) -> int:
        """The HTTP status for a client with this token."""
        try:
            await self.receiver.authenticate("n1", token, peer)
        except ReportRejectedError as error:
            return error.status
        return 200


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    it = Receiver(tmp_path)
    with it.receiver.open(active_terms.publishing_to([])):
        yield it


async def flood(receiver: Receiver) -> None:
    for number in range(1000):
        await receiver.status(f"stolen {number}")


async def test_unknown_tokens_of_an_address_are_reviewed_up_to_a_limit(receiver: Receiver) -> None:
    await flood(receiver)
    assert receiver.accounts.right == agent_receiver.MOST_REVIEWS
    assert await receiver.status("stolen again") == 429
    receiver.now_s = 1.0
    assert await receiver.status("stolen again") == 401
    assert await receiver.status("stolen again") == 429


async def test_a_flood_from_one_address_delays_no_new_token_of_another(receiver: Receiver) -> None:
    await flood(receiver)
    assert await receiver.status("first", OTHER) == 200


async def test_an_agent_that_is_known_is_accepted_despite_a_flood_from_its_address(
    receiver: Receiver,
) -> None:
    """Its token is reviewed every few minutes."""
    assert await receiver.status("first") == 200
    await flood(receiver)
    receiver.now_s = agent_receiver.TOKEN_KEPT_S
    await flood(receiver)
    assert (await receiver.status("first"), await receiver.status("second")) == (200, 429)


async def test_valid_tokens_of_one_address_are_not_limited(receiver: Receiver) -> None:
    """As behind a gateway with the address of all agents."""
    names = [f"agent {number}" for number in range(1000)]
    receiver.accounts.users |= dict.fromkeys(names, receiver.accounts.users["first"])
    assert {await receiver.status(name) for name in names} == {200}


async def test_a_token_that_was_revoked_is_limited_as_an_unknown_one(receiver: Receiver) -> None:
    await receiver.status("first")
    receiver.now_s = agent_receiver.TOKEN_KEPT_S
    del receiver.accounts.users["first"]
    for _ in range(100):
        await receiver.status("first")
    assert receiver.accounts.right == 1 + 1 + agent_receiver.MOST_REVIEWS

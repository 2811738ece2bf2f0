"""A real API server authenticates users and authorizes requests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from stromboli.shared import errors
from stromboli.shared.api import kinds
from stromboli.shared.cluster import accounts
from stromboli.shared.cluster.kubernetes import (
    KubernetesAccounts,
    KubernetesCluster,
    KubernetesSettings,
)
from stromboli.testkit import tenants
from stromboli.testkit.contracts import accounts as contract
from stromboli.testkit.parts import fixtures, real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]


def connect(kubeconfig: Path) -> KubernetesCluster:
    return KubernetesCluster(KubernetesSettings(kubeconfig=str(kubeconfig)))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(real_parts: real.RealParts) -> contract.Scene:
    """Made once: nothing in it changes."""
    scene = contract.Scene()
    async with real_parts.client() as api:
        await tenants.create(api, scene)
    return scene


class TestKubernetesAccounts(contract.AccountsContract):
    @pytest.fixture
    async def setting(
        self, real_parts: real.RealParts, scene: contract.Scene
    ) -> AsyncIterator[contract.Setting]:
        async with real_parts.client() as api, connect(real_parts.kubeconfig) as cluster:
            tokens = await tenants.tokens(api, scene, (contract.AUDIENCE, contract.OTHER_AUDIENCE))
            yield contract.Setting(scene, KubernetesAccounts(cluster), tokens)


async def test_a_token_for_the_api_server_is_not_valid_for_rest(real_parts: real.RealParts) -> None:
    """Who has only that must not have to show it to us."""
    async with connect(real_parts.kubeconfig) as cluster:
        found = await KubernetesAccounts(cluster).authenticate(
            real_parts.token, [contract.AUDIENCE]
        )
    assert isinstance(found, accounts.UnknownToken)


async def test_a_missing_right_to_review_tokens_rejects_all_users(
    real_parts: real.RealParts,
) -> None:
    """A missing right of Stromboli's own is an internal error, never a decision about the user."""
    kubeconfig = real_parts.api_server.kubeconfig(fixtures.UNPRIVILEGED_USER)
    user, requested = accounts.User(name="ann"), accounts.right("list", kinds.JOBS)
    async with connect(kubeconfig) as cluster:
        stranger = KubernetesAccounts(cluster)
        with pytest.raises(errors.UnavailableError, match="tokenreviews"):
            await stranger.authenticate("any", [contract.AUDIENCE])
        with pytest.raises(errors.UnavailableError, match="subjectaccessreviews"):
            await stranger.is_allowed(user, requested)
        assert await stranger.own_username() == fixtures.UNPRIVILEGED_USER

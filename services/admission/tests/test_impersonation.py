"""With impersonation, what users write is written under their names; reads are our own."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from stromboli.admission.rest import application
from stromboli.admission.review.service import AdmissionService
from stromboli.admission.settings import AdmissionSettings
from stromboli.embedded.cluster import EmbeddedCluster
from stromboli.shared.api import kinds
from stromboli.shared.cluster import port
from stromboli.shared.runtime import runtime
from stromboli.testkit.admission_cases import manifests
from stromboli.testkit.contracts.accounts import AUDIENCE, Scene
from stromboli.testkit.doubles import authorized_admission

SETTINGS = AdmissionSettings()


class Impersonations:
    """Records who is impersonated with which groups."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.users: list[str] = []
        self.groups: list[Sequence[str]] = []

    def __call__(self, user: str, groups: Sequence[str]) -> port.Cluster:
        self.users.append(user)
        self.groups.append(groups)
        return self._cluster


Served = tuple[authorized_admission.AuthorizedAdmission, Impersonations]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with authorized_admission.open_admission(tmp_path, Scene()) as server:
        impersonations = Impersonations(server.cluster)
        server.admission = AdmissionService(
            SETTINGS, server.cluster, runtime.utc_now, server.authenticator, impersonations
        )
        server.app = application.rest_application(
            server.admission,
            server.cluster,
            SETTINGS,
            [runtime.Health("admission")],
            server.authenticator,
        )
        yield server, impersonations


async def test_what_a_user_creates_is_written_as_that_user_with_all_groups(served: Served) -> None:
    server, impersonations = served
    scene = server.scene
    path = f"/v1/namespaces/{scene.blue}/jobs"
    document = manifests.job()
    document["metadata"] = {"name": "train", "namespace": scene.blue}
    async with server.as_("ann") as ann:
        assert (await ann.post(path, json=document)).status_code == 201
        assert (await ann.get(f"{path}/train")).status_code == 200
    assert impersonations.users == [scene.user("ann")]
    principal = await server.authenticator.authenticate(
        authorized_admission.token_of("ann"), (AUDIENCE,)
    )
    assert impersonations.groups == [principal.groups]


async def test_reads_name_no_user(served: Served) -> None:
    server, impersonations = served
    async with server.as_("ann") as ann:
        await ann.get(f"/v1/namespaces/{server.scene.blue}/{kinds.JOBS.plural}")
    assert not impersonations.users

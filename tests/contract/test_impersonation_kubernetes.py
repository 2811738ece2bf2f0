"""A real API server takes impersonated requests as the user's."""

import msgspec
import pytest

from stromboli.shared import errors
from stromboli.shared.api import kinds, meta
from stromboli.shared.cluster.kubernetes import KubernetesCluster, KubernetesSettings
from stromboli.testkit import objects
from stromboli.testkit.parts import real

pytest_plugins = ["stromboli.testkit.parts.fixtures"]
pytestmark = [pytest.mark.real]

REVIEWS: kinds.Kind[meta.Object] = kinds.Kind(
    "authentication.k8s.io",
    "v1",
    "SelfSubjectReview",
    "selfsubjectreviews",
    meta.Object,
    namespaced=False,
)


def connect(parts: real.RealParts) -> KubernetesCluster:
    return KubernetesCluster(KubernetesSettings(kubeconfig=str(parts.kubeconfig)))


async def test_the_server_sees_the_impersonated_user_and_all_groups(
    real_parts: real.RealParts,
) -> None:
    body = msgspec.json.encode({"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind})
    async with connect(real_parts) as cluster:
        ann = cluster.impersonating("ann@example.com", ("team:blue", "system:authenticated"))
        user = msgspec.json.decode(await ann.create(REVIEWS, "", body))["status"]["userInfo"]
        own = msgspec.json.decode(await cluster.create(REVIEWS, "", body))["status"]["userInfo"]
    assert user["username"] == "ann@example.com"
    assert set(user["groups"]) == {"team:blue", "system:authenticated"}
    assert own["username"] != user["username"]


async def test_the_rights_of_the_impersonated_user_count_and_not_those_of_the_service(
    real_parts: real.RealParts,
) -> None:
    name = objects.unique("impersonated")
    maps, body, change = kinds.CONFIG_MAPS, objects.config_map(name), objects.merge(data={})
    async with connect(real_parts) as cluster:
        other = cluster.impersonating("nobody-knows-me", ())
        with pytest.raises(errors.ForbiddenError, match="nobody-knows-me"):
            await other.create(maps, "default", body)
        await cluster.create(maps, "default", body)
        with pytest.raises(errors.ForbiddenError, match="nobody-knows-me"):
            await other.patch(maps, "default", name, change, patch_type="merge")
        with pytest.raises(errors.ForbiddenError, match="nobody-knows-me"):
            await other.delete(maps, "default", name)
        await cluster.patch(maps, "default", name, change, patch_type="merge")
        await cluster.delete(maps, "default", name)


@pytest.mark.parametrize("name", ["", "ann\r\nImpersonate-Group: system:masters", "a\x00"])
def test_a_name_that_no_header_can_carry_is_refused(name: str) -> None:
    cluster = KubernetesCluster(KubernetesSettings())
    for user, groups in ((name, ()), ("ann", (name,))):
        with pytest.raises(errors.PermanentError):
            cluster.impersonating(user, groups)
